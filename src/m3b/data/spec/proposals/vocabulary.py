"""Word lists of requests and of data, folded as `language.words` does."""

from __future__ import annotations


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


STOP = _set(
    """
    a all an and any are as at be between build by can classification classifier classify could create ct data
    detect detects develop diagnose different disease distinguish do each else find for from give have i if image
    images in into is it make me medical model models mri my need no not of on or other others patient patients
    picture pictures please predict rest scan scans segment segmentation tell tells that the them this to train
    trained using want was we weighted were whether which with without write x ray rays xray xrays
    """
)
"""Words of requests that say nothing of their subject."""
REST = _set(
    """
    rest other others else versus vs against andere anderen autres otros resto übrige
    """
)
"""Words by which a request sets one class against all others."""
NEGATIVE = _set(
    """
    no non not without healthy normal negative none absent control controls clear benign regular unremarkable
    nofinding gesund unauffallig sano sana sain sans ohne kein keine sin
    """
)
"""Words that say that nothing was found."""
WITHOUT = _set("without ohne sans sin senza")
"""Words after which a label says what is absent of what stands before them."""
UNCLEAR = _set(
    """
    todo unknown tbd unclear unsure indeterminate uncertain na nan
    """
)
"""Labels that are none."""
NOT_LABELS = _set(
    """
    split fold subset partition set id patient subject sex gender age view side laterality modality scanner site
    hospital date location url license folder clinical institution probe manufacturer
    """
)
"""Columns that are no class labels."""
GENERIC = _set(
    """
    image img picture data dataset mask label annotation jpg png dicom dcm raw file folder video clip
    """
)
"""Folder names that are no classes."""
PIECES = _set("part batch chunk volume disk archive zip subset block teil partie")
"""Words for the pieces in which many files are packed."""
SEQUENCES = _set(
    """
    flair t1 t2 t1c t1ce t1gd t1w t2w pd stir dwi adc swi dce mr mri ct cbct pet spect us ap pa lateral frontal axial
    coronal sagittal channel phase arterial venous delayed pt
    """
)
"""Sequences, modalities, views and phases: folders called like these hold several images of a case, not classes."""
RESONANCE = _set("mr mri mrt irm rm flair t1 t2 t1w t2w dwi adc swi")
NOT_MR = _set("ct cbct cta pet ultrasound sonography radiograph ray rays mammogram mammograms oct angiography")
"""Words of requests for images by magnetic resonance, and by something else."""
PLANES = _set("ap pa lateral frontal axial coronal sagittal")
"""Those of them that are views: they share no grid with each other, or not the slices."""
SIDES = _set("left right od os l r")
VIEWS = PLANES | SIDES | _set("pa cc mlo")
"""Names of views, and of the sides of a body."""
EVERY = _set("all every each any alle jede tous toutes todos todas")
FINDINGS = _set("finding label pathology disease abnormality befund")
"""With a word of `EVERY`: a request for whatever is labelled."""
NO_NAME = _set(
    """
    mask masks label labels seg segmentation gt groundtruth truth annotation annotations
    """
)
"""Words of mask files that name no class."""
SYNONYMS = (
    "tumor cancer carcinoma neoplasm malignancy malignant tumeur krebs",
    "hemorrhage bleeding bleed hematoma",
    "stone calculus calculi lithiasis",
    "stroke infarct infarction ischemia ischemic",
    "tear torn rupture ruptured",
    "covid coronavirus corona covid19",
    "nevus naevus nevi naevi mole",
    "pneumonia pneumonie lungenentzundung neumonia",
    "fracture broken fraktur fractura",
    "full complete total",
    "tuberculosis tb tuberkulose",
    "cyst cystic zyste",
)
"""Words of medicine that mean the same, or stand for one thing where classes are told apart."""
