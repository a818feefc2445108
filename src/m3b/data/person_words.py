"""Words that stand in names of files beside names of persons, and names that are common words too."""

from __future__ import annotations


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


WEAK = _set(
    """
    adam alpha amber angel april arm art auge august autumn ava back ball bauch bein bell berg best bianco bill
    bird black blanc blanco blood bone brain braun bravo brown brun bueno cabeza calvo carina case chance chase
    chelsea christian church clay corona costa cross cruz crystal dawn day dean delgado drew eden eve faith
    field fields foot ford forest fox frank gene ginger gold good grace grand grant gray green gross grosso guy
    hals hand harmony haut head heart heath herz high hill hope hunter iris israel ivy jack jade jan jasmine
    jewel joy june justice kidney king klein kopf kurz lake lamb lance lane lang leblanc lee legrand leon leroy
    lily long lou love low lunge luz mano mar mark marsh mason max may medina melody min misty neck nero night
    noir norm north olive page paris park pat pearl penny petit pie power pre price ray red reed rey rice rich
    rivers rob roja rojo rosa rose rosso roth roux roy ruby sandy schwarz sharp sierra skin sky small sol south
    star stone storm street strong summer sun taylor tony travis trinity true val van venus victor viola violet
    virginia von wade ward weiss west white will wise wolf wood young zahn
    """
)
"""Names that are common words too: they are no evidence of a person by themselves."""
VOCABULARY = _set(
    """
    adc annotation annotations array artery atlas atrophy axial baseline batch bbox benign bladder body bone box
    boxes brain breast canal case cases cell cells center centre chest class classes client clinic coefficient
    cohort contrast cord coronal cropped ct cta data dataset date day deep dev device dice dicom diff disc disk
    distance duct early edit epoch eval exam export file files filter final finding findings flair flip follow
    followup frame frames full gland gray ground group hospital host id image images img index info input
    institute joint kernel key keys lab label labels late left lesion level likelihood line list liver lobe log
    loss lower lung malignant map mask masks matter mean medical meta metadata method metric model monte month
    mr mra mri muscle negative nerve net new node none normal normalisation normalization old optimizer organ
    original output parts patient patients phase plane point positive post pre preview prior project raw report
    reports result results right roi sagittal saint sample samples san sankt santa scan scans score scores seg
    segmentation sequence series server session set side sinus site size slice slices spinal spine split stack
    std study subject swi table tag target test text thorax tissue train transform transverse trial truth tumor
    tumour type unit university upper user val valid validation valve vein vessel view visit volume volumes week
    weight weights white window xray year zone
    """
)
"""Words of file names and of the trade: an unlisted word beside a given name is taken for a family name, these are not."""
EPONYMS = frozenset(
    tuple(pair.split("-"))
    for pair in _set(
        """
        ann-arbor arnold-chiari bland-altman bloom-richardson budd-chiari calve-perthes charcot-marie child-pugh child-turcotte
        creutzfeldt-jakob dandy-walker ehlers-danlos ellis-creveld graves-basedow guillain-barre hand-schuller hardy-weinberg
        henry-gauss hill-sachs hippel-lindau hosmer-lemeshow hunt-hess kaplan-meier kellgren-lawrence klippel-feil
        klippel-trenaunay kolmogorov-smirnov langer-giedion legg-calve lennox-gastaut lown-ganong mallory-weiss mann-whitney
        marie-tooth may-grunwald may-thurner mayer-rokitansky osgood-schlatter osler-weber parkinson-white peutz-jeghers
        richardson-elston rosai-dorfman salter-harris scarff-bloom shapiro-wilk sorensen-dice spetzler-martin stevens-johnson
        sturge-weber van-gieson weber-rendu wolff-parkinson wright-giemsa zollinger-ellison
        """
    )
)
"""Scales, diseases, stains and tests that are called after two persons: such a pair names nobody."""
PARTICLES = _set("de la del der den di da dos du le van von zu bin al el ten ter")
TITLES = _set(
    """
    mr mrs ms miss dr prof herr herrn frau mme mlle mons sr sra dra dott dottssa patient pat patientin proband paciente
    paziente patiente name nom nombre surname nachname vorname
    """
)
"""What stands before a name."""
