"""Sentences on how far the answers on test cases can be trusted: what they depend on, and how well uncertainty finds the errors."""

from __future__ import annotations

from m3b.metrics.selective import compute_selective_risks, read_risk
from m3b.models.predictions import Saliency
from m3b.report.case_ranking import CaseRanking

METHODS = {
    "hirescam": "HiResCAM, from the last feature maps: coarse, and no proof of the reason",
    "occlusion": "occlusion of patches: evidence that shows twice is missed",
    "attention": "attention to the tiles of a slide: where the network looked, for or against the answer",
}
"""Method of a saliency map -> its name and its limit."""
COVERAGES = (0.8, 0.9)


def describe_saliency(saliency: Saliency) -> str:
    """Return the method with its limit, and what the answer is without the marked part of the image."""
    whole, hidden, elsewhere = saliency.score, saliency.score_hidden, saliency.score_elsewhere
    scores = [_format_score(score, is_probability=bool(saliency.target)) for score in (whole, hidden, elsewhere)]
    start = f"Saliency ({METHODS.get(saliency.method, saliency.method)}): {saliency.target or 'answer'} {scores[0]}"
    if hidden == elsewhere == whole:
        return f"{start}; no part of the image speaks for it by itself."
    drops = [whole - score if saliency.target else abs(whole - score) for score in (hidden, elsewhere)]
    doubt = (
        ""
        if drops[0] > max(drops[1], 0)
        else " The outlined part matters no more than another: do not rely on this map."
    )
    return f"{start}; {scores[1]} without the outlined part, {scores[2]} without an equal part elsewhere.{doubt}"


def _format_score(score: float, *, is_probability: bool) -> str:
    if not is_probability:
        return f"{score:.4g}"
    return "<0.001" if score < 0.0005 else ">0.999" if score >= 0.9995 else f"{score:.3f}"


def describe_selective_risk(ranking: CaseRanking) -> list[str]:
    """Return how many of the most certain cases are wrong; empty without uncertainties, or with too few cases."""
    pairs = [
        (case.summary.uncertainty, case.summary.is_wrong)
        for case in ranking.cases
        if case.summary.uncertainty is not None and case.summary.is_wrong is not None
    ]
    if len(pairs) < 1 / (1 - COVERAGES[0]) or not any(wrong for _, wrong in pairs):
        return []
    risks = compute_selective_risks([value for value, _ in pairs], [bool(wrong) for _, wrong in pairs])
    shares = ", ".join(f"{read_risk(risks, coverage):.1%} of the surest {coverage:.0%}" for coverage in COVERAGES)
    return [
        f"Wrong are {shares}, {risks[-1]:.1%} of all test cases; area under the risk-coverage curve "
        f"{risks.mean():.3f}, {risks[-1]:.3f} if the uncertainty said nothing."
    ]
