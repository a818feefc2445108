"""The task that a request asks for, and what success at it is measured by."""

from __future__ import annotations

import re

from m3b.llm.rules.words import plain

SEGMENTATION = "segment delineat contour outlin umrand einzeichn eingezeichnet umriss contourn delimit annotate-pixel 分割 勾画 輪郭"
DRAWN = r"\b(?:draw|paint|colou?r|mark|outline|trace)(?:s|ed|ing)?\b.{0,60}\b(?:scan|ct|mri?|image|volume|number|it|them|picture)"
REPORTS = (  # of texts without accents
    r"(?:writ|generat|draft|produc|compos|schreib|verfass|erstell|gener|redig|redact|escrib)\w*\W+(?:\w+\W+){0,8}?"
    r"(?:report|bericht|befundbericht|befund|informe|comptes?[- ]rendu|radiologist.s text)"
    r"|report (?:generation|writing)|(?:生成|撰写|写)\S{0,6}报告"
    # "write the findings" is a text; "find the findings" is not
    r"|(?:^|[.;,]\s*|\b(?:that|to|which|can|please)\s+)(?:writ|draft|compos|dictat|redig|redact|verfass|schreib)\w*\W+(?:\w+\W+){0,4}?"
    r"(?:findings|impressions?|conclusions?|captions?|descriptions?|befunde?|hallazgos|conclusiones)"
)
BOXES = (
    "bounding box", "localise", "localize", "locate", "lokalisier", "localis", "localiz", "检测框", "位置", "定位"
)  # fmt: skip
BOXED = r"\b(?:with|in|by|as|draw|put|set)(?: an?| the)? (?:box|boxes)\b|\bbox(?:es)? (?:around|on|of|for)\b"
FINDING = r"\b(?:detect|find|finds|finde|finden|erkenn|trouv|detecter|detectar|encontrar|spot)\w*"
TASKS = ("diagnosis", "segmentation", "detection", "report")
METRICS = {
    "diagnosis": ("auroc", "balanced_accuracy", "accuracy", "f1"),
    "segmentation": ("dice", "nsd", "hd95"),
    "detection": ("lesion_f1", "dice", "map_50", "map", "froc", "image_auroc"),
    "report": ("bleu_4", "bleu_1", "rouge_l", "meteor", "cider", "label_f1"),
}
"""By task, what success is measured by: the first, unless the card names another of these."""
BOX_METRICS = ("map_50", "map", "froc", "image_auroc")


def asked_task(request: str) -> str:
    """The task that a request names: segmentation, detection or report; empty where its words leave it open.

    "Detect" alone leaves it open: a model that detects pneumonia may well be a classifier.
    """
    low = plain(request)
    if re.search(REPORTS, low) and not re.search(r"labels? (?:were |are )?(?:taken|from|extracted)", low):
        return "report"
    if any(phrase in low for phrase in map(plain, BOXES)) or re.search(BOXED, low):
        return "detection"
    if any(re.search(rf"\b{word}" if word.isascii() else word, low) for word in map(plain, SEGMENTATION.split())):
        return "segmentation"
    return "segmentation" if re.search(DRAWN, low) else ""


def wants_found(request: str) -> bool:
    """Whether a request wants something found, which may mean where it lies."""
    return bool(re.search(FINDING, plain(request)))
