"""One row an image: its path, slots, headers and array values, and the tables that are joined to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import polars as pl

from m3b.dataset.inventory import with_path_columns
from m3b.dataset.manifest.model import Agreement, ColumnChoice, Match, Table, ValueSource
from m3b.dataset.manifest.problems import PatternError, Problem, list_names, unknown_column
from m3b.dataset.manifest.readers import FolderReaders, StackedTable
from m3b.dataset.manifest.templates import (
    Template,
    check_expression,
    columns_of,
    fold,
    match_keys,
    normalize,
    parse_template,
    take_text,
)
from m3b.dataset.tables import FILE_COLUMN, LIST_SEPARATOR, ROW_COLUMN

CONFLICT = "(conflict)"
"""Ending of the column that says whether a table's rows for an image disagree."""
MAX_EXAMPLES = 5


@dataclass(frozen=True)
class JoinedTable:
    """A table and the images that its rows belong to.

    Args:
        pairs: `left` (place of the image) and `right` (row of the stacked table).
        unmatched: keys of rows that no image has.
    """

    name: str
    table: StackedTable
    pairs: pl.DataFrame
    unmatched: pl.Series
    has_several: bool

    @property
    def matched_rows(self) -> int:
        """Rows that belong to an image."""
        return self.pairs["right"].n_unique()


@dataclass
class ImageFrame:
    """Images with columns, which are added when a template needs them.

    Args:
        frame: one row an image, with `path`, `ref`, and for joins `(image)`, its number.
    """

    frame: pl.DataFrame
    readers: FolderReaders
    problems: list[Problem]
    tables: dict[str, JoinedTable] = field(default_factory=dict)

    def add_columns(self, names: Sequence[str], part: str) -> None:
        """Make sure that columns are there; an unknown one is a problem, and null from then on."""
        names = [name for name in names if name not in self.frame.columns]
        if not names:
            return
        self.frame = with_path_columns(self.readers.with_tags(self.frame, names), names)
        for name in names:
            if name in self.frame.columns:
                continue
            if name.startswith("member."):
                self._add_member(name, part)
                continue
            self.problems.append(unknown_column(part, name, self.column_names()))
            self.frame = self.frame.with_columns(pl.lit(None, pl.String).alias(name))

    def column_names(self) -> list[str]:
        """Names that a template may use."""
        image_columns = [name for name in self.frame.columns if name != "ref" and not name.endswith(CONFLICT)]
        paths = ["folder", "name", "stem", "suffix", "parent", "folder0"]
        tables = [f"{name}.{column}" for name, join in self.tables.items() for column in join.table.columns]
        return list(dict.fromkeys([*(name for name in image_columns if not name.startswith("(")), *paths, *tables]))

    def _add_member(self, name: str, part: str) -> None:
        """A value of another array of the same file, for the same item."""
        template = parse_template(name.removeprefix("member."), part)
        self.add_columns(template.columns, part)
        keyed = self.frame.select(
            "path",
            key=template.expression(),
            index=pl.col("index") if "index" in self.frame.columns else pl.lit(None, pl.String),
        )
        texts: list[str | None] = []
        has_values = False
        for path, key, index in keyed.iter_rows():
            values = self.readers.member_values(path, key) if key else None
            has_values |= values is not None
            if isinstance(values, list):
                place = int(index) if index is not None else -1
                texts.append(values[place] if 0 <= place < len(values) else None)
            else:
                texts.append(values)
        if not has_values and texts:
            members = list_names(self.readers.members(keyed["path"][0]))
            self.problems.append(
                Problem(
                    code="unknown_member",
                    part=part,
                    finding=f"no file has an array {name.removeprefix('member.')!r} of one "
                    f"value an image; {keyed['path'][0]} has {members}.",
                    remedy="Use one of these arrays.",
                    values={"member": name},
                )
            )
        column = pl.Series(name, texts, dtype=pl.String)
        self.frame = self.frame.with_columns(pl.when(column == "").then(None).otherwise(column).alias(name))

    def template(self, text: str, part: str) -> Template:
        """A template whose columns are there; of one that cannot be read, one that gives nothing."""
        try:
            template = parse_template(text, part)
        except PatternError as error:
            self.problems.append(error.problem)
            return Template(text, ())
        self.add_columns(template.columns, part)
        return template

    def keys(self, text: str, match: Match, part: str) -> pl.Series:
        """A template's text of each image as a key."""
        template = self.template(text, part)
        return self.frame.with_columns(normalize(template.expression(), match).alias("(key)"))["(key)"].rename("key")

    def join(self, name: str, table: Table, columns: Sequence[str]) -> None:
        """Join a table; only the columns that templates name are taken.

        Args:
            columns: those of the table that the manifest uses.
        """
        part = f"tables.{name}"
        try:
            stacked = self.readers.table(table, part)
        except PatternError as error:
            self.problems.append(error.problem)
            self.frame = self.frame.with_columns(
                pl.lit(None, pl.String).alias(f"{name}.{column}") for column in columns
            )
            return
        rows = stacked.frame
        own_keys = [self._row_keys(rows, text, table.match, f"{part}.key") for text in table.keys]
        image_keys = self.keys(table.image, table.match, f"{part}.image")
        pairs = pl.concat(
            [
                match_keys(image_keys, keyed["key"], table.match).with_columns(
                    pl.col("right").replace_strict(
                        pl.int_range(len(keyed), dtype=pl.UInt32, eager=True), keyed["row"], return_dtype=pl.UInt32
                    )
                )
                if len(keyed) != len(rows)
                else match_keys(image_keys, keyed["key"], table.match)
                for keyed in own_keys
            ]
        )
        if len(own_keys) > 1:
            pairs = pairs.unique(maintain_order=True)
        join = self._note_join(name, table, stacked, pairs, own_keys, image_keys)
        self.tables[name] = join
        choices = {column: table.choices[column] for column in columns if column in table.choices}
        agreements = {column: table.agreements[column] for column in columns if column in table.agreements}
        sources = [column for choice in choices.values() for column in choice.columns.values()]
        sources += [column for item in agreements.values() for column in (*item.readers, item.consensus)]
        plain_columns = [
            column for column in dict.fromkeys((*columns, *sources)) if column not in {*choices, *agreements}
        ]
        self._take_columns(join, [column for column in plain_columns if self._has_column(stacked, name, column)])
        for column, choice in choices.items():
            self.add_choice(name, column, choice)
        for column, agreement in agreements.items():
            self.add_agreement(name, column, agreement)

    def add_choice(self, name: str, column: str, choice: ColumnChoice) -> None:
        """Add the column of a table whose cells come from one of several of its columns, which are there."""
        text = self.template(choice.image, f"tables.{name}.choices").expression()
        key = text.str.to_lowercase().str.strip_chars().str.replace_all(r"\s+", " ")
        for ending in ("", CONFLICT):
            sources = {fold(value): f"{name}.{source}{ending}" for value, source in choice.columns.items()}
            if all(source in self.frame.columns for source in sources.values()):
                cells = [pl.when(key == value).then(pl.col(source)) for value, source in sources.items()]
                self.frame = self.frame.with_columns(pl.coalesce(cells).alias(f"{name}.{column}{ending}"))

    def add_agreement(self, name: str, column: str, agreement: Agreement) -> None:
        """Add the column of a table on which its readers agree, or that its consensus settles; the columns are there."""
        first, *other_readers = (pl.col(f"{name}.{reader}") for reader in agreement.readers)
        agrees = pl.all_horizontal(first == reading for reading in other_readers)
        text = pl.when(agrees).then(first).otherwise(pl.col(f"{name}.{agreement.consensus}"))
        self.frame = self.frame.with_columns(text.alias(f"{name}.{column}"))
        flags = [f"{name}.{source}{CONFLICT}" for source in (*agreement.readers, agreement.consensus)]
        if all(flag in self.frame.columns for flag in flags):
            conflict = pl.any_horizontal(pl.col(flag).fill_null(False) for flag in flags)
            self.frame = self.frame.with_columns(conflict.alias(f"{name}.{column}{CONFLICT}"))

    def _has_column(self, stacked: StackedTable, name: str, column: str) -> bool:
        if column in stacked.frame.columns:
            return True
        columns = [f"{name}.{name_of_column}" for name_of_column in stacked.columns if name_of_column != ROW_COLUMN]
        self.problems.append(unknown_column(f"tables.{name}", f"{name}.{column}", columns))
        self.frame = self.frame.with_columns(pl.lit(None, pl.String).alias(f"{name}.{column}"))
        return False

    def _row_keys(self, rows: pl.DataFrame, text: str, match: Match, part: str) -> pl.DataFrame:
        """`row` and `key` of each row, or several if its cell is a list."""
        empty = pl.DataFrame(schema={"row": pl.UInt32, "key": pl.String})
        try:
            template = parse_template(text, part)
        except PatternError as error:
            self.problems.append(error.problem)
            return empty
        if rows[FILE_COLUMN].n_unique() > 1:
            with_path = with_path_columns(rows.with_columns(pl.col(FILE_COLUMN).alias("path")), template.columns)
            rows = rows.hstack(
                [with_path[name] for name in template.columns if name not in rows.columns and name in with_path.columns]
            )
        if missing := [name for name in template.columns if name not in rows.columns]:
            columns = [name for name in rows.columns if name != FILE_COLUMN]
            self.problems += [unknown_column(part, name, columns) for name in missing]
            return empty
        keyed = rows.select(row=pl.int_range(pl.len(), dtype=pl.UInt32), key=template.expression())
        if keyed["key"].str.contains(LIST_SEPARATOR, literal=True).any():
            keyed = keyed.with_columns(pl.col("key").str.split(LIST_SEPARATOR)).explode("key")
        return keyed.with_columns(normalize(pl.col("key"), match))

    def _note_join(
        self,
        name: str,
        table: Table,
        stacked: StackedTable,
        pairs: pl.DataFrame,
        own_keys: list[pl.DataFrame],
        image_keys: pl.Series,
    ) -> JoinedTable:
        row_keys = pl.concat(own_keys).drop_nulls("key")
        unmatched = row_keys.filter(~pl.col("row").is_in(pairs["right"].unique().implode()))["key"]
        part = f"tables.{name}"
        if (
            not len(pairs)
            and len(self.frame)
            and all(problem.part.split(".")[:2] != ["tables", name] for problem in self.problems)
        ):
            rows, images = (
                keys.drop_nulls().unique(maintain_order=True).head(3).to_list()
                for keys in (row_keys["key"], image_keys)
            )
            self.problems.append(
                Problem(
                    code="join_matches_nothing",
                    part=part,
                    finding=f"no row's key ({table.match}) is that of an image. Keys of rows: "
                    f"{list_names(rows)}; of images: {list_names(images)}.",
                    remedy="Change `key`, `image` or `match` so that both give the same text.",
                    values={"rows": rows, "images": images},
                )
            )
        if table.match in ("basename", "stem", "path_tail", "normalized", "number") and len(pairs):
            self._check_ambiguity(name, table, pairs, image_keys)
        has_several = pairs["left"].n_unique() < len(pairs)
        return JoinedTable(name, stacked, pairs, unmatched, has_several)

    def _check_ambiguity(self, name: str, table: Table, pairs: pl.DataFrame, image_keys: pl.Series) -> None:
        """Warn if a name in a table is that of files in several folders: one of them is meant."""
        names = columns_of([table.image])
        if not set(names) & {"path", "name", "stem"}:
            return
        paths = self.frame["ref"]
        matches = pairs.with_columns(path=paths.gather(pairs["left"]), key=image_keys.gather(pairs["left"]))
        counts = matches.group_by("right").agg(
            pl.col("path").n_unique().alias("images"), pl.col("key").first(), pl.col("path")
        )
        several = counts.filter(pl.col("images") > 1)
        if not len(several):
            return
        example = several.sort("key").row(0, named=True)
        self.problems.append(
            Problem(
                code="ambiguous_join",
                part=f"tables.{name}",
                severity="warning",
                finding=f"{len(several):,} keys are those of several images, such as {example['key']!r}: "
                f"{list_names(example['path'], 4)}.",
                remedy="If a row is of one image only, put a folder or slot into `key` and `image`.",
                values={"keys": len(several), "example": sorted(example["path"])[:4]},
            )
        )

    def _take_columns(self, join: JoinedTable, columns: Sequence[str]) -> None:
        names = {column: f"{join.name}.{column}" for column in columns}
        names = {column: name for column, name in names.items() if name not in self.frame.columns}
        if not names:
            return
        cells = join.table.frame.select(
            pl.col(column).gather(join.pairs["right"]).alias(name) for column, name in names.items()
        )
        cells = cells.with_columns(join.pairs["left"])
        if join.has_several:
            lists = cells.group_by("left").agg(
                pl.col(name).drop_nulls().unique(maintain_order=True) for name in names.values()
            )
            alone = [
                pl.when(pl.col(name).list.len() == 1).then(pl.col(name).list.first()).alias(name)
                for name in names.values()
            ]
            several = [(pl.col(name).list.len() > 1).alias(name + CONFLICT) for name in names.values()]
            cells = lists.select("left", *alone, *several)
        numbered = self.frame.with_row_index("left")
        self.frame = numbered.join(cells, on="left", how="left", maintain_order="left").drop("left")

    # --- values ------------------------------------------------------------------------------------------------------------

    def value_expressions(self, value: ValueSource, part: str) -> tuple[pl.Expr, pl.Expr | None]:
        """The text of a value, and whether rows of a table disagree about it (None: they cannot)."""
        template = self.template(value.value, part)
        if value.find:
            try:
                check_expression(value.find, part)
            except PatternError as error:
                self.problems.append(error.problem)
                return pl.lit(None, pl.String), None
        text = take_text(template.expression(), value.find, value.unknown, value.missing)
        flags = [name + CONFLICT for name in template.columns if name + CONFLICT in self.frame.columns]
        if not flags:
            return text, None
        conflict = pl.any_horizontal(pl.col(flag).fill_null(False) for flag in flags)
        return pl.when(~conflict).then(text), conflict

    def gathered(self, value: ValueSource, part: str) -> pl.Series:
        """All texts of a value for each image, of every row of the tables that it names."""
        template = self.template(value.value, part)
        several = [
            join
            for name, join in self.tables.items()
            if join.has_several and any(column.startswith(f"{name}.") for column in template.columns)
        ]
        long = self.frame.rename({"(image)": "left"})
        for join in several:
            join_columns = [column for column in template.columns if column.startswith(f"{join.name}.")]
            cells = join.table.frame.select(
                pl.col(name.removeprefix(f"{join.name}.")).gather(join.pairs["right"]).alias(name)
                for name in join_columns
                if name.removeprefix(f"{join.name}.") in join.table.frame.columns
            ).with_columns(join.pairs["left"])
            long = long.drop([name for name in cells.columns if name != "left"]).join(cells, on="left", how="left")
        text = take_text(template.expression(), value.find, value.unknown, value.missing)
        texts = long.select("left", text=text)
        if not several:
            return texts.select(pl.concat_list("text").list.drop_nulls().alias("text"))["text"]
        grouped = texts.group_by("left").agg(pl.col("text").drop_nulls().unique(maintain_order=True))
        return self.frame.select(left="(image)").join(grouped, on="left", how="left", maintain_order="left")["text"]
