"""Headers that consist of words of identity, in any order and glued or not: `NAME_LAST`, `bdate`, `Tel.-Nr. Angehörige`.

A header names a person if it has a word of identity and no word outside of this vocabulary: `phone model`, `birth weight` and
`radiologist label` are about something else.
"""

from __future__ import annotations

import functools
import re


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


_IDENTITY = _set(
    """
    surname lastname firstname forename fullname nickname maidenname birthdate birthday bdate bday birthdt dob yob birthplace born
    ssn mrn phone tel telephone cellphone fax
    email mail address addr street city town postcode zipcode postal insurance insurer passport ville
    accession referrer guardian spouse iban employer
    nachname vorname vornamen zuname rufname familienname geburtsname geburtsdatum geburtstag geburtsjahr geburtsort geb geboren
    wohnort anschrift adresse strasse plz postleitzahl hausnummer telefon telefonnummer handy mobilnummer
    krankenkasse kasse versicherung
    krankenversicherung versichertennummer versicherungsnummer sozialversicherung sozialversicherungsnummer rentenversicherungsnummer
    hausarzt zuweiser arbeitgeber fallnummer aufnahmenummer krankenversichertennummer
    prenom prenoms naissance telephone courriel domicile mutuelle secu cpam
    apellido apellidos nacimiento telefono correo domicilio direccion ciudad aseguradora dni nif nie nhc curp
    cognome nascita indirizzo citta cellulare telefono
    sobrenome nascimento endereco cidade telefone celular telemovel morada cpf
    voornaam achternaam geboortedatum geboorte woonplaats telefoon telefoonnummer zorgverzekeraar bsn
    nazwisko imie urodzenia pesel zamieszkania soyadi adi dogum kimlik
    fornamn efternamn fodelsedatum personnummer fornavn etternavn efternavn fodselsdato fodselsnummer cpr
    etunimi sukunimi henkilotunnus syntymaaika osoite puhelin prijmeni jmeno narozeni
    """
)
_NAME = _set("name names initials nom nome nombre naam namn navn nimi vor nach")
_NAME_PART = _set(
    "first last given family middle maiden full fore sur nick legal primer segundo famille jeune fille usage"
)
_PERSON = _set(
    """
    patient patients pt pat subject person client proband participant mother father parent child relative emergency contact
    physician doctor dr md referring attending operator technician technologist radiologist surgeon nurse
    patienten patientin paciente pacientes paziente patiente pacjent hasta arzt aerztin medecin medico medica lekarz huisarts
    angehorige ansprechpartner mutter vater
    """
)
_CONTACT = _set("contact emergency relative ansprechpartner angehorige")
_DOCTOR = _set("physician doctor dr md referring arzt aerztin medecin medico medica lekarz huisarts")
_BIRTH = _set("birth geburts")
_BIRTH_PART = _set("date dt day year yr month time place city town country datum tag jahr ort")
_SOCIAL = _set(
    "social sociale securite seguridad sozial security versicherungs versicherten kranken medical health record hospital"
)
_NUMBER = _set("number no nr num numero nummer n id nummern nmr")
_FILLER = _set(
    "of the de del du des di da do das der le la el y and et und e o no. value text string field info details 1 2 3"
    " line code key home work mobile cell private personal privat prive am le on in"
) | _NUMBER | _BIRTH_PART  # fmt: skip
_VOCABULARY = _IDENTITY | _NAME | _NAME_PART | _PERSON | _BIRTH | _SOCIAL | _FILLER
_GLUE = ("s", "n", "")
_SHORT_PIECES = _set("of de du no nr dt id")
MAX_GLUED = 60
MIN_PIECE = 3
"""Letters of a word of the vocabulary that is looked for in a longer one."""
_WRITTEN = re.compile(
    "姓名|氏名|电话|電話|手机|手機|携帯|住址|住所|地址|身份证|身份證|证件号|出生(?!体重|体重|時体重|身长|孕|缺陷|结局)|生年月日|生日|病历号|病歷號|住院号"
    "|医保|社保|保险号|保険証|郵便番号|邮编|邮箱|联系人|聯絡|主治|이름|성명|생년월일|주민등록|전화|주소"
    "|фамилия|отчество|дата рождения|телефон|снилс|تاريخ الميلاد|رقم الهاتف"
)


def is_identity(words: str) -> bool:
    """Return whether a header, in the normal form of `m3b.data.phi`, consists of words of identity."""
    if not words.isascii() and _WRITTEN.search(words):
        return True
    tokens = [piece for word in words.split() for piece in _split(word)]
    if not tokens or not _VOCABULARY.issuperset(tokens):
        return False
    there = set(tokens)
    return bool(
        there & _IDENTITY
        or (there & _NAME and there & (_NAME_PART | _PERSON))
        or (there & _NAME_PART and there & _PERSON)
        or (there & _BIRTH and there & _BIRTH_PART)
        or (there & _CONTACT and there & (_NUMBER | {"info", "details", "person"}))
        or (there & _DOCTOR and there - {"dr", "md", "doctor"})
        or len(there & _SOCIAL - {"medical", "health", "record", "hospital"}) > 1
        or (there & _SOCIAL and there & _NUMBER)
    )


@functools.lru_cache(maxsize=1 << 14)
def _split(word: str) -> tuple[str, ...]:
    """Return a word as the words of the vocabulary that it is glued of (`patientbirthdate`); itself if it is not."""
    if word in _VOCABULARY or len(word) > MAX_GLUED:
        return (word,)
    for end in range(len(word) - 2, 1, -1):
        head, tail = word[:end], _split(word[end:])
        pieces = {head.removesuffix(glue) for glue in _GLUE if head.endswith(glue)} & _VOCABULARY
        pieces = {piece for piece in pieces if len(piece) >= MIN_PIECE or piece in _SHORT_PIECES}
        if (
            pieces
            and all(len(piece) >= MIN_PIECE or piece in _SHORT_PIECES for piece in tail)
            and _VOCABULARY.issuperset(tail)
        ):
            return (max(pieces, key=len), *tail)
    return (word,)
