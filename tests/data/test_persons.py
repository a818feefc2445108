"""Names of persons in names of files: found in the languages that hospitals write, and other words left alone."""

from __future__ import annotations

import time

import pytest

from m3b.data.persons import find

PERSONS_IN_TEXT = {
    "Mueller_Anna_1956-03-02_CT.nii.gz": ["Mueller", "Anna", "1956-03-02"],
    "Müller, Anna/img.png": ["Müller", "Anna"],
    "anna_weber_001.png": ["anna", "weber"],
    "WEBER-ANNA.dcm": ["WEBER", "ANNA"],
    "WeberAnna19560302.nii": ["Weber", "Anna", "19560302"],
    "Weber^Anna^^Dr": ["Weber", "Anna"],
    "key 'Smith_John': float32": ["Smith", "John"],
    "seen by John Smith.": ["John", "Smith"],
    "García_López_María": ["García", "López", "María"],
    "Dupont_Jean-Pierre": ["Dupont", "Jean", "Pierre"],
    "Kowalczykowska_Anna_01": ["Kowalczykowska", "Anna"],
    "Anna_van_der_Berg": ["Anna", "van", "der", "Berg"],
    "Zhang_Wei_CT": ["Zhang", "Wei"],
    "张伟_CT.nii.gz": ["张伟"],
    "王小明/1.dcm": ["王小明"],
    "山田太郎_01.dcm": ["山田太郎"],
    "Yamada_Taro": ["Yamada", "Taro"],
    "Lawrence_Kellgren": ["Lawrence", "Kellgren"],
    "Dr_Schneider": ["Schneider"],
    "patient_Weber_02": ["Weber"],
    "MRN_1234567.png": ["1234567"],
    "geb_19560302_scan.png": ["19560302"],
}
TEXTS_WITHOUT_PERSONS = """
Normal_Chest_01.png|Gray_Matter|left_lung|Adam optimizer|train_case_0001.png|Max_Intensity|Iris_Brown|covid_19|lung_opacity
images_train/patient_001|patient_key|Tumor_Core|IM_20200101_0001.png|高密度影|白质|肺炎_01|左肺_结节|torch.optim.Adam|os.path.join
Cardiomegaly_Effusion|Anna_Mask|Santa_Maria|Spinal_Cord|pass^k|Rosa_Parks_Hospital|Gaussian_Blur|dice_loss|sub-01_ses-02_T1w
Grade (Kellgren-Lawrence 0 to 4)|kellgren_lawrence|Child-Pugh|Legg-Calvé-Perthes|Kaplan-Meier|Mann-Whitney|Hunt_Hess_3|Van-Gieson
""".replace("\n", "|")


@pytest.mark.parametrize("text", PERSONS_IN_TEXT)
def test_what_names_a_person_is_found(text: str) -> None:
    assert [text[span.start : span.end] for span in find(text)] == PERSONS_IN_TEXT[text]


@pytest.mark.parametrize("text", [text for text in TEXTS_WITHOUT_PERSONS.split("|") if text])
def test_other_words_are_left_alone(text: str) -> None:
    assert find(text) == []


@pytest.mark.parametrize("text", ["Anna Weber ", "Anna_Weber_", "a ", "Anna", "王小明", "mrn 1", "von der ", "Dr "])
def test_names_are_looked_for_in_linear_time(text: str) -> None:
    find("Anna Weber")
    began = time.process_time()
    find(text * (80_000 // len(text)))
    assert time.process_time() - began < 2, "a tenth of a second of this machine's; 80 kB took 7 to 20"
