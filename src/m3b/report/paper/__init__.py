"""The paper kit of a run: methods, flow diagram, Table 1, results and checklists, with every number from locked facts."""

from .kit import KitFinding, PaperKit, compare_paper_kit, find_run_of_kit, is_paper_kit, write_paper_kit

__all__ = ["KitFinding", "PaperKit", "compare_paper_kit", "find_run_of_kit", "is_paper_kit", "write_paper_kit"]
