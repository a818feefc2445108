"""Six patients as hospitals of six countries write them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Person:
    """One patient as a hospital of a country writes them.

    Args:
        heads: headers of name, birth, telephone, record number, address.
        file: the name as in a file name.
        note: a clinical note in which the patient is named.
        secret: what must not be seen, anywhere.
    """

    heads: tuple[str, str, str, str, str]
    name: str
    born: str
    phone: str
    record: str
    address: str
    file: str
    dicom: str
    note: str
    secret: tuple[str, ...]

    @property
    def values(self) -> tuple[str, ...]:
        return (self.name, self.born, self.phone, self.record, self.address)


PEOPLE = {
    "English": Person(
        ("Patient Name", "Date of Birth", "Phone", "MRN", "Address"), "Emily Thornton", "12/03/1956", "555-867-5309",
        "MRN-4471923", "12 Baker Street", "Thornton_Emily_19560312", "Thornton^Emily",
        "Mrs Thornton was born on 12 March 1956, phone 555-867-5309, mail emily.thornton@example.org.",
        ("Thornton", "Emily", "12/03/1956", "19560312", "12 March 1956", "867-5309", "4471923", "Baker"),
    ),
    "German": Person(
        ("Name, Vorname", "Geburtsdatum", "Telefonnummer", "Patientennummer", "Wohnort"), "Köhler, Brigitte", "12.03.1956",
        "0171-9876543", "P4471923", "Lindenallee 7, Kassel", "Köhler_Brigitte_12031956", "Köhler^Brigitte",
        "Frau Köhler, geb. 12.03.1956, Tel. 0171-9876543, brigitte.koehler@example.org.",
        ("Köhler", "Brigitte", "koehler", "12.03.1956", "12031956", "9876543", "4471923", "Lindenallee"),
    ),
    "French": Person(
        ("Nom et prénom", "Date de naissance", "Tél.", "N° dossier", "Adresse"), "Lefèvre Geneviève", "12/03/1956",
        "06 12 34 56 78", "D4471923", "7 rue des Tilleuls", "Lefèvre_Geneviève_12-03-1956", "Lefèvre^Geneviève",
        "Mme Lefèvre, née le 12/03/1956, tél. 06 12 34 56 78, genevieve.lefevre@example.org.",
        ("Lefèvre", "Geneviève", "lefevre", "12/03/1956", "12-03-1956", "12 34 56", "4471923", "Tilleuls"),
    ),
    "Spanish": Person(
        ("Nombre y apellidos", "Fecha de nacimiento", "Teléfono móvil", "NHC", "Domicilio"), "María García Fernández",
        "12-03-1956", "+34 612 345678", "H4471923", "Calle del Olmo 7", "García_Fernández_María_19560312",
        "García^María", "Sra. García, F. nac. 12-03-1956, tel. +34 612 345678, maria.garcia@example.org.",
        ("María", "García", "Fernández", "garcia", "12-03-1956", "19560312", "345678", "4471923", "Olmo"),
    ),
    "Chinese": Person(
        ("姓名", "出生日期", "联系电话", "病案号", "家庭住址"), "王小明", "1956年3月12日", "13812345678", "B4471923",
        "北京市海淀区7号", "王小明_19560312", "Wang^Xiaoming=王小明",
        "患者姓名：王小明，出生日期：1956年3月12日，手机 13812345678，wangxiaoming@example.cn。",
        ("王小明", "1956年3月", "19560312", "13812345678", "4471923", "海淀", "Xiaoming", "wangxiaoming"),
    ),
    "Japanese": Person(
        ("患者氏名", "生年月日", "電話番号", "カルテ番号", "住所"), "山田太郎", "1956/03/12", "03-1234-5678", "K4471923",
        "東京都港区7番", "山田太郎_19560312", "Yamada^Taro=山田^太郎",
        "患者氏名: 山田太郎、生年月日: 1956/03/12、電話 03-1234-5678、taro.yamada@example.jp。",
        ("山田", "太郎", "Yamada", "Taro", "yamada", "1956/03/12", "19560312", "1234-5678", "4471923", "港区"),
    ),
}  # fmt: skip
