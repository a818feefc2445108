"""Attacks around the sandbox: each reaches its goal although the sandbox holds, or did before it was mended.

`python -m tests.attacks` runs their tests with all others; docs/security.md shows the table.
"""

from __future__ import annotations

from attacks.cheats import LABELLED, PREVENTED, Cheat

REFUSED = "prevented with bubblewrap; with Landlock the run ends, unless `--sandbox landlock` was given"
BY_KIND = "prevented for the kinds that are named below; **not stopped** for others"
HERE, SURVEY, HIDDEN = (
    "tests/attacks/",
    "tests/dataset_survey/test_hostile_folders.py::",
    "tests/models/test_hidden_data.py::",
)
READER, EXPORTS = "tests/reader/test_reader.py::", f"{HERE}test_exported_texts.py::"
DELIVERED, PLANTED = f"{HERE}test_delivered_models.py::", f"{HERE}test_planted_runs.py::"

ATTACKS = (
    Cheat("a README in the data that links to keys", PREVENTED, "links are not followed",
          (f"{HERE}test_notes_in_data.py::test_a_note_that_is_a_link_is_not_read",)),
    Cheat("a planted run that is found as `last`", PREVENTED, "only runs in the list of your runs have a name",
          (f"{PLANTED}test_predict_last_runs_no_code_of_a_data_set",)),
    Cheat("a delivered model that behaves until it is used", PREVENTED, "it is confined in use too",
          (f"{DELIVERED}test_a_model_in_use_finds_no_keys_in_environments", f"{DELIVERED}test_a_model_in_use_has_no_network")),
    Cheat("a class name that MONAI runs", PREVENTED, "signs of MONAI's configuration are escaped",
          (f"{EXPORTS}test_a_bundle_of_a_hostile_class_name_runs_nothing",)),
    Cheat("formulas in tables of predictions", PREVENTED, "cells that spreadsheets would run become texts",
          (f"{EXPORTS}test_no_cell_of_predictions_is_a_formula",)),
    Cheat("test labels in the Data Engineer's words", PREVENTED, "only m3b's own sentences reach those who train",
          ("tests/pipeline/test_pipeline_happy.py::test_closing_words_of_a_role_that_saw_test_labels_reach_no_role_that_trains",)),
    Cheat("labels in paths, joined with an identifier in staged copies", REFUSED, "no raw data is mounted; with Landlock, which "
          "cannot hide names, those that tell labels are looked for; minimal copies hold no identifier to join names with",
          ("tests/run/test_visible_names.py::test_classes_in_folders_and_names",
           "tests/run/test_visible_names.py::test_the_manifest_says_that_a_label_comes_from_the_path",
           "tests/models/test_staging.py::test_copies_hold_no_texts_or_are_named")),
    Cheat("labels in headers of staged copies", PREVENTED, "copies hold what decoding needs; others are named in the model card",
          ("tests/formats/test_minimal_copies.py::test_dicom",
           "tests/formats/test_minimal_copies.py::test_png_keeps_pixels_of_every_mode",
           "tests/models/test_staging.py::test_copies_hold_no_texts_or_are_named")),
    Cheat("output of predict.py on test cases", PREVENTED, "only exit status and class of the exception are told",
          ("tests/agents/test_check_model.py::test_output_on_test_cases_reaches_the_user_alone",)),
    Cheat("images and tables hidden in a delivered folder", BY_KIND, "weights, code and texts are searched",
          (f"{HIDDEN}test_data_in_tensors", f"{HIDDEN}test_data_in_code", f"{HIDDEN}test_data_in_texts",
           f"{HIDDEN}test_bytes_that_pass_for_a_vocabulary")),
    Cheat("a configuration that m3b cannot read", PREVENTED, "the model is rejected, and the run goes on",
          (f"{HERE}test_hand_over_files.py::test_a_deep_configuration_is_a_model_error",
           "tests/models/test_malformed_files.py::test_m3b_predict_refuses")),
    Cheat("edits of a finished run", LABELLED, "`m3b verify`; if all records are rewritten consistently, only with `--expect`",
          ("tests/run/test_edit_matrix.py::test_an_edit_is_found",
           "tests/run/test_edit_matrix.py::test_a_forger_is_found_by_a_fingerprint_that_was_kept")),
    Cheat("a resumed run that asks for less confinement", PREVENTED, "the list of your runs has the level",
          (f"{PLANTED}test_a_record_that_says_off_is_not_obeyed",
           "tests/pipeline/test_pipeline_confinement.py::test_less_than_before_takes_a_word_of_the_user")),
    Cheat("a link in the place of a staged copy", PREVENTED, "copies replace links and never write through them",
          (f"{HERE}test_untrusted.py::test_copies_of_data_are_never_written_through_a_link",)),
    Cheat("a taken-over reader that talks or grows without end", PREVENTED, "a time for each file, limits of bytes and nodes",
          (f"{READER}test_an_answer_of_endless_values_does_not_grow_in_this_process",
           f"{READER}test_a_job_that_only_talks_is_cancelled", f"{READER}test_a_file_has_ten_times_the_time_in_all")),
    Cheat("one odd name or nested JSON that stops all", PREVENTED, "it loses its own file only",
          (f"{HERE}test_odd_names.py::test_a_look_reads_the_rest_of_the_folder",)),
    Cheat("files that declare more than they hold", PREVENTED, "sizes before contents, lists without opening",
          (f"{SURVEY}test_a_slice_that_declares_gigabytes_is_refused_before_memory_is_taken",
           f"{SURVEY}test_a_virtual_dataset_of_a_terabyte_is_not_read",
           f"{SURVEY}test_millions_of_numbers_are_counted_and_not_written_one_by_one",
           "tests/formats/test_containers.py::test_datasets_of_one_file_are_opened_when_they_are_read",
           "tests/tables/test_loading.py::test_a_wide_table_is_read_in_part")),
    Cheat("identity under unusual headers", BY_KIND.replace(" that are named below", " of the suite's list"),
          "vocabulary in fifteen languages, patterns of values",
          ("tests/tools/test_privacy_places.py::test_identity_is_masked_in_every_place",)),
    Cheat("names found again from pseudonyms", PREVENTED, "keyed by a random secret of the user",
          ("tests/agents/test_pseudonym_secret.py::test_the_same_in_every_process_of_a_user_and_different_without_the_secret",)),
    Cheat("a server that repeats the key", PREVENTED, "it is cut from answers before they are kept",
          ("tests/llm/test_streaming.py::test_a_key_in_a_good_answer_is_cut",)),
)  # fmt: skip


def title_of(node: str) -> str:
    """Return the attack that a test belongs to; empty for others."""
    test = node.partition("[")[0]
    return next((attack.name for attack in ATTACKS if test in attack.tests), "")
