"""Stated and denied parts of a report: scopes of negation, after NegEx (Chapman et al., J. Biomed. Inform. 34, 2001)."""

from __future__ import annotations

import re

_CLAUSE_ENDS = re.compile(
    r"[.;:!?\n\u3002\uff1b]+(?!\d)|\bbut\b|\bhowever\b|\balthough\b|\bexcept\b"
    r"|\bthere (?:is|are|has been)\b|\baber\b|\bpero\b|\bmais\b"
)
_NO_DENIALS = re.compile(
    r"\b(?:no|not|without)(?: (?:any|significant|significantly|substantial|appreciable|definite|interval|further|real))*"
    r" (?:change|changed|changes|increase|increased|decrease|difference|progression|improvement|only|excluded|be excluded|ruled out)\b"
    r"|\b(?:cannot|can not|could not|may not) (?:be )?(?:excluded?|ruled out|rule out)\b"
)
"""Phrases that look like a denial but state: no change in the effusion; pneumonia cannot be excluded."""
_EMPTY_ANSWERS = re.compile(r":\s*(?:none|no|absent|negative|nil|not seen)\s*(?=[.,;\n]|$)")
_BEFORE = re.compile(
    r"\b(?:no|not|without|absent|none|nor|never|kein|keine|keinen|keiner|ohne|nicht|sin|ni|ningun|ninguna|sans|pas|aucun|aucune|senza|"
    r"non(?!-)|nessun|nessuna|sem|nao|geen|niet|zonder|inga|ingen|utan|free of|clear of|negative for|absence of|rather than|ruled out|"
    r"rule out|resolved|resolution of|clearance of|clearing of|removal of|removed|history of|evaluate for|assess for)\b"
)
"""Words that deny their following scope; a history and a question are no statements of findings either."""
_BEHIND = re.compile(
    r"\bno longer\b|\b(?:is|are|was|were) (?:absent|excluded|ruled out|not|gone)\b"
    r"|\b(?:has|have) (?:now |since )?(?:been )?(?:completely )?(?:resolved|cleared|been removed|removed|disappeared)\b"
    r"|\bnot (?:seen|present|identified|detected|visuali[sz]ed|appreciated|evident|noted|demonstrated|shown|apparent)\b"
)
"""Words that deny what precedes them."""
_NEW_STATEMENT = re.compile(
    r"(?:and |with |und |y |et )?(?:an?|the|there|which|small|tiny|trace|minimal|mild|mildly|moderate|moderately|large|severe|marked|"
    r"extensive|diffuse|stable|unchanged|persistent|persisting|residual|new|increased|increasing|decreased|decreasing|improved|improving|"
    r"worsened|worsening|chronic|old|bilateral|bibasilar|bibasal|left|right|patchy|linear|low|enlarged|elevated|calcified|status|interval|"
    r"prominent|probable|possible|likely|subtle|scattered|multiple|several|degenerative|known|kleine?[rsn]?|geringe?[rsn]?|m\u00e4\u00dfige?[rsn]?|"
    r"gro\u00dfe?[rsn]?|neue?[rsn]?|leichte?[rsn]?|bekannte?[rsn]?|peque\u00f1[oa]s?|leves?|moderad[oa]s?|grandes?|petite?s?|mod\u00e9r\u00e9e?s?|nouve(?:au|lle)s?)\b"
)
"""Start of a part of a sentence that states something new after a denial: "no pneumothorax, small left effusion"."""
_JOINTS = re.compile(r"\b(?:and|with|und|y|et)\b(?= )")
_LIST_ENDS = re.compile(r"^(?:or|nor|and|oder|und|o|ni|ou|et)\b|\b(?:or|nor|oder|ou)\b")


def list_stated_parts(text: str) -> list[str]:
    """Return the parts of a report, in lower case, that are stated and not denied.

    A denial reaches over commas and "or" to the end of its clause, but not beyond the start of a new statement. Doubt ("cannot
    exclude") counts as a statement; resolved or removed findings and the history do not.
    """
    plain = _EMPTY_ANSWERS.sub(" is absent", _NO_DENIALS.sub(" ", text.lower()))
    return [part for clause in _CLAUSE_ENDS.split(plain) for part in _split_clause(clause) if part]


def _split_clause(clause: str) -> list[str]:
    items = [item.strip() for item in clause.split(",")]
    last_of_list = max((index for index, item in enumerate(items) if index and _LIST_ENDS.search(item)), default=-1)
    stated: list[str] = []
    is_denied = False
    for index, item in enumerate(items):
        denial_behind = _BEHIND.search(item)
        if denial_behind:
            if index == last_of_list:
                stated.clear()
            item = item[denial_behind.end() :]
        elif is_denied and index > last_of_list and _NEW_STATEMENT.match(item):
            is_denied = False
        while item:
            denial_before = _BEFORE.search(item)
            if not is_denied:
                stated.append(item[: denial_before.start() if denial_before else len(item)].strip())
            if not is_denied and denial_before is None:
                break
            is_denied = True
            remainder = item[denial_before.end() :] if denial_before else item
            conjunction = next(
                (
                    match
                    for match in _JOINTS.finditer(remainder)
                    if _NEW_STATEMENT.match(remainder[match.end() :].strip())
                ),
                None,
            )
            if conjunction is None:
                break
            item, is_denied = remainder[conjunction.end() :].strip(), False
    return stated
