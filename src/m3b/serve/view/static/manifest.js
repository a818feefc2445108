// The form of a manifest, made from its JSON schema, with counts after each change.
(() => {
  "use strict";

  const form = document.getElementById("manifest-form");
  if (!form) return;
  const settings = JSON.parse(document.getElementById("manifest-settings").textContent);
  const COUNT_DELAY_MS = 400;
  const START_CHECK_MS = 400;
  const ENTRIES = "#entries"; // objects of JavaScript do not keep the order of names that are numbers

  const make = (name, properties = {}, ...children) => {
    const element = Object.assign(document.createElement(name), properties);
    element.append(...children);
    return element;
  };
  const makeButton = (text, onClick) => {
    const button = make("button", { type: "button", textContent: text });
    button.addEventListener("click", () => {
      onClick();
      onChange();
    });
    return button;
  };
  const isEqual = (left, right) => JSON.stringify(left) === JSON.stringify(right);
  const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);

  // --- the schema ------------------------------------------------------------------------------------------------

  const resolve = (schema) => {
    if (schema.prefixItems) return { ...schema, items: schema.prefixItems[0] };
    if (!schema.$ref) return schema;
    const target = resolve(settings.schema.$defs[schema.$ref.split("/").pop()]);
    return { ...target, ...schema, description: schema.description || target.description, $ref: undefined };
  };
  const listChoices = (schema) => {
    const resolved = resolve(schema);
    return resolved.anyOf ? resolved.anyOf.flatMap(listChoices) : [resolved];
  };
  const isNull = (schema) => schema.type === "null";
  const isPlainItem = (schema) => listChoices(schema).every((item) => ["string", "integer", "number"].includes(item.type));

  // A control is {element, read()}; read() returns undefined for what is left out.

  const makeText = (schema, value, isOptional) => {
    const input = make("input", { type: "text", value: value ?? schema.default ?? "", spellcheck: false });
    return { element: input, read: () => (input.value === "" && isOptional ? null : input.value) };
  };

  const makeNumber = (schema, value, isOptional) => {
    const input = make("input", { type: "number", step: schema.type === "integer" ? "1" : "any", value: value ?? schema.default ?? "" });
    return { element: input, read: () => (input.value === "" ? (isOptional ? null : undefined) : Number(input.value)) };
  };

  const makeBoolean = (schema, value) => {
    const input = make("input", { type: "checkbox", checked: value ?? schema.default ?? false });
    return { element: input, read: () => input.checked };
  };

  const makeChoice = (schema, value) => {
    const select = make("select", {}, ...schema.enum.map((choice) => new Option(choice === "" ? "(none)" : choice, choice)));
    select.value = value ?? schema.default ?? schema.enum[0];
    return { element: select, read: () => select.value };
  };

  const makeLines = (schema, value) => {
    const lines = value === undefined || value === null ? [] : [value].flat();
    const takesNumbers = listChoices(schema.items || {}).some((item) => item.type === "integer" || item.type === "number");
    const area = make("textarea", { rows: Math.max(1, Math.min(8, lines.length)), value: lines.join("\n"), spellcheck: false });
    area.placeholder = "one entry a line";
    area.addEventListener("input", () => {
      area.rows = Math.max(1, Math.min(8, area.value.split("\n").length));
    });
    const parse = (line) => (takesNumbers && /^-?\d+(\.\d+)?$/.test(line) ? Number(line) : line);
    const readLines = () => area.value.split("\n").map((line) => line.trim()).filter((line) => line !== "").map(parse);
    const read = () => {
      const current = readLines();
      return typeof value === "string" && current.length === 1 ? current[0] : current;
    };
    return { element: area, read };
  };

  const makeList = (schema, value, path) => {
    const holder = make("div");
    const items = [];
    const add = (item) => {
      const control = makeControl(schema.items, item, `${path}.${items.length}`);
      const row = make("div", { className: "entry unnamed" }, control.element, makeButton("Remove", () => {
        items.splice(items.indexOf(control), 1);
        row.remove();
      }));
      items.push(control);
      holder.insertBefore(row, adder);
    };
    const adder = makeButton("Add", () => add(undefined));
    holder.append(adder);
    (value || []).forEach(add);
    return { element: holder, read: () => items.map((item) => item.read()) };
  };

  const makeMap = (schema, value, path) => {
    const holder = make("div");
    const entries = [];
    const add = (name, item) => {
      const key = make("input", { type: "text", value: name, placeholder: "name", spellcheck: false });
      key.setAttribute("aria-label", `name in ${path}`);
      const control = makeControl(schema.additionalProperties, item, `${path}.${name}`);
      const entry = { key, control };
      const row = make("div", { className: "entry" }, key, control.element, makeButton("Remove", () => {
        entries.splice(entries.indexOf(entry), 1);
        row.remove();
      }));
      entries.push(entry);
      holder.insertBefore(row, adder);
    };
    const adder = makeButton("Add", () => add("", undefined));
    holder.append(adder);
    const pairs = value && value[ENTRIES] ? value[ENTRIES] : Object.entries(value || {});
    pairs.forEach(([name, item]) => add(name, item));
    const read = () => entries.filter(({ key }) => key.value).map(({ key, control }) => [key.value, control.read()]);
    return { element: holder, read: () => (read().length ? { [ENTRIES]: read() } : {}) };
  };

  const formatHint = (text) => text.split("`").map((piece, number) => (number % 2 ? make("code", { textContent: piece }) : piece));

  const makeField = (name, schema, value, path, isRequired) => {
    const control = makeControl(schema, value, path);
    const resolved = resolve(schema);
    const isNested = control.element.matches("div, fieldset");
    const label = make(isNested ? "div" : "label", { className: "name", textContent: name });
    if (!isNested) {
      control.element.removeAttribute("aria-label");
      control.element.id = `field-${path}`;
      label.htmlFor = control.element.id;
    }
    const hint = resolved.description ? [make("p", { className: "hint" }, ...formatHint(resolved.description))] : [];
    const area = make("div", { className: "control" }, control.element);
    const element = make("div", { className: `field${isNested ? " nested" : ""}` }, label, ...(isNested ? [...hint, area] : [area, ...hint]));
    element.dataset.part = path;
    const read = () => {
      const current = control.read();
      const isEmpty = isObject(resolved.default) && isEqual(current, {});
      const isDefault = current === undefined || isEmpty || isEqual(current, resolved.default ?? null);
      return isDefault && !isRequired ? undefined : current;
    };
    return { element, read };
  };

  const makeObject = (schema, value, path) => {
    const fields = Object.entries(schema.properties).filter(([, property]) => resolve(property).const === undefined);
    const required = new Set(schema.required || []);
    const holder = make("div");
    const rest = make("div");
    const controls = fields.map(([name, property]) => {
      const own = value ? value[name] : undefined;
      const field = makeField(name, property, own, path ? `${path}.${name}` : name, required.has(name));
      (required.has(name) || (own !== undefined && own !== null) ? holder : rest).append(field.element);
      return [name, field];
    });
    if (rest.children.length) {
      const summary = `${rest.children.length} more: ${[...rest.children].map((field) => field.dataset.part.split(".").pop()).join(", ")}`;
      holder.append(make("details", {}, make("summary", { className: "quiet", textContent: summary }), rest));
    }
    const read = () => Object.fromEntries(controls.map(([name, field]) => [name, field.read()]).filter(([, item]) => item !== undefined));
    return { element: holder, read };
  };

  const makeGroup = (schema, value, path) => {
    const inner = makeObject(schema, value, path);
    inner.element.className = "part-group";
    return inner;
  };

  // A part that may be absent, or be a text in place of an object.
  const makeOptional = (choices, value, path) => {
    const holder = make("div", { className: "optional" });
    const objectChoice = choices.find((choice) => choice.properties);
    const textChoice = choices.find((choice) => choice.type === "string");
    let control = null;
    const show = (made, ...buttons) => {
      control = made;
      holder.replaceChildren(...(made ? [made.element] : []), ...buttons);
    };
    const remover = () => makeButton("Remove", showNothing);
    const showObject = (item) => {
      const asText = textChoice ? [makeButton("Only a text", () => showText(control.read().value))] : [];
      show(makeGroup(objectChoice, item, path), ...asText, ...(choices.some(isNull) ? [remover()] : []));
    };
    const showText = (item) => {
      const text = makeText(textChoice, item);
      text.element.setAttribute("aria-label", path);
      show(text, ...(objectChoice ? [makeButton("With options", () => showObject({ value: control.read() }))] : []), ...(choices.some(isNull) ? [remover()] : []));
    };
    const showNothing = () => show(null, makeButton("Add", () => (textChoice ? showText("") : showObject({}))));
    const isOnlyText = textChoice && isObject(value) && isEqual(Object.keys(value), ["value"]) && typeof value.value === "string";
    if (isOnlyText) showText(value.value);
    else if (value === undefined || value === null) choices.some(isNull) ? showNothing() : textChoice ? showText("") : showObject({});
    else if (isObject(value)) showObject(value);
    else showText(value);
    return { element: holder, read: () => (control ? control.read() : null) };
  };

  const makeControl = (schema, value, path) => {
    const control = chooseControl(schema, value, path);
    if (control.element.matches("input, select, textarea")) control.element.setAttribute("aria-label", path);
    return control;
  };

  const chooseControl = (schema, value, path) => {
    const choices = listChoices(schema);
    const described = { ...resolve(schema) };
    const real = choices.filter((choice) => !isNull(choice));
    const array = real.find((choice) => choice.type === "array");
    if (array && isPlainItem(array.items || {})) return makeLines(array, value ?? described.default, path);
    if (real.some((choice) => choice.properties)) return real.length === 1 && choices.length === 1 ? makeGroup(real[0], value, path) : makeOptional(choices, value, path);
    const [only] = real;
    const merged = { ...only, default: described.default ?? only.default };
    if (only.type === "array") return makeList(only, value ?? merged.default, path);
    if (only.additionalProperties && only.type === "object") return makeMap(only, value ?? merged.default, path);
    if (only.enum) return makeChoice(merged, value);
    if (only.type === "boolean") return makeBoolean(merged, value);
    if (only.type === "number" || only.type === "integer") return makeNumber(merged, value, choices.some(isNull));
    return makeText(merged, value, choices.some(isNull));
  };

  // --- counts ----------------------------------------------------------------------------------------------------

  const counts = document.getElementById("counts");
  const trainForm = document.getElementById("train-form");
  const trainButton = trainForm.querySelector("button");
  const trainStatus = document.getElementById("train-status");
  const manifestText = document.getElementById("manifest-json");
  let waiting = 0;
  let lastRequest = 0;

  const post = (action, body) =>
    fetch(`${settings.address}/${action}${settings.query ? `?${settings.query}` : ""}`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
    });

  const makeBullets = (texts) => make("ul", {}, ...texts.map((textContent) => make("li", { textContent })));

  const makeCountTable = (parts) => {
    const names = [...new Set(parts.flatMap((part) => Object.keys(part.classes)))];
    const rows = [
      ["all cases", ...parts.map((part) => part.cases)],
      ["patients", ...parts.map((part) => part.patients ?? "unknown")],
      ...names.map((name) => [name, ...parts.map((part) => part.classes[name] ?? 0)]),
    ];
    const makeCell = (name, cell) => make(name, { textContent: typeof cell === "number" ? cell.toLocaleString("en") : cell });
    const makeRow = (cells, name) => make("tr", {}, makeCell("th", cells[0]), ...cells.slice(1).map((cell) => makeCell(name, cell)));
    const table = make("table", { className: "numbers" }, make("thead", {}, makeRow(["Cases", ...parts.map((part) => part.title)], "th")), make("tbody", {}, ...rows.map((row) => makeRow(row, "td"))));
    return table;
  };

  const findField = (part) => {
    const names = part.split(".");
    while (names.length) {
      const field = form.querySelector(`[data-part="${CSS.escape(names.join("."))}"]`);
      if (field) return field;
      names.pop();
    }
    return null;
  };

  const showErrors = (errors) => {
    form.querySelectorAll(".field-error").forEach((element) => element.remove());
    form.querySelectorAll(".wrong").forEach((element) => element.classList.remove("wrong"));
    for (const error of errors) {
      const field = findField(error.part);
      if (!field) continue;
      field.classList.add("wrong");
      field.append(make("p", { className: "field-error", textContent: error.message }));
      for (let block = field.closest("details"); block; block = block.parentElement.closest("details")) block.open = true;
    }
  };

  const showCounts = (answer) => {
    showErrors(answer.errors);
    manifestText.textContent = answer.text || "";
    const parts = [];
    if (answer.errors.length) {
      const texts = answer.errors.map(({ part, message }) => (!part || message.startsWith(part) ? message : `${part}: ${message}`));
      parts.push(make("p", {}, make("strong", { textContent: "The manifest cannot be used:" })), makeBullets(texts));
    }
    if (answer.parts) {
      parts.push(makeCountTable(answer.parts));
      if (answer.warnings.length) parts.push(make("h3", { textContent: "Warnings" }), makeBullets(answer.warnings.map((warning) => `${warning.part}: ${warning.message}`)));
      parts.push(make("h3", { textContent: "Difference to the proposal" }), answer.difference.length ? makeBullets(answer.difference) : make("p", { className: "quiet", textContent: "none" }));
      for (const { title, reasons } of answer.excluded) {
        if (reasons.length) parts.push(make("h3", { textContent: title }), makeBullets(reasons.map((item) => `${item.count.toLocaleString("en")}: ${item.reason}`)));
      }
    }
    counts.replaceChildren(...parts);
    counts.dataset.state = answer.errors.length ? "wrong" : "counted";
    trainButton.disabled = answer.errors.length > 0;
  };

  const count = async () => {
    lastRequest += 1;
    const number = lastRequest;
    const manifest = root.read();
    counts.classList.add("stale");
    counts.dataset.state = "counting";
    trainButton.disabled = true;
    let answer;
    try {
      const response = await post("count", { manifest });
      if (!response.ok) throw new Error(`status ${response.status}`);
      answer = await response.json();
    } catch (error) {
      answer = { errors: [{ part: "", message: `m3b could not count: ${error.message}` }] };
    }
    if (number !== lastRequest) return;
    counts.classList.remove("stale");
    showCounts(answer);
  };

  function onChange() {
    clearTimeout(waiting);
    trainButton.disabled = true;
    waiting = setTimeout(count, COUNT_DELAY_MS);
  }

  const follow = async (run) => {
    for (;;) {
      const answer = await (await fetch(`/started/${run}`)).json();
      if (answer.problem) throw new Error(answer.problem);
      if (answer.address) return location.assign(answer.address);
      await new Promise((wake) => setTimeout(wake, START_CHECK_MS));
    }
  };

  trainForm.addEventListener("submit", async (event) => {
    event.preventDefault();
    trainButton.disabled = true;
    trainStatus.textContent = "Starting …";
    try {
      const { request, minutes } = trainForm.elements;
      const response = await post("train", { manifest: root.read(), request: request.value, minutes: Number(minutes.value) });
      const answer = await response.json();
      if (answer.problem) throw new Error(answer.problem);
      await follow(answer.run);
    } catch (error) {
      trainStatus.textContent = `The run was not started: ${error.message}`;
      trainButton.disabled = false;
    }
  });

  const root = makeObject(settings.schema, settings.manifest, "");
  form.append(root.element);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", onChange);
  count();
})();
