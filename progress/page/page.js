"use strict";
// Texts of models and commands reach the page through textContent alone.
(() => {
  const byId = (id) => document.getElementById(id);
  const steps = JSON.parse(byId("trajectories-data").textContent);
  const stepSelect = byId("step"), sampleSelect = byId("sample"), shown = byId("trajectory");
  if (!steps.length) return;

  const add = (parent, tag, text, className) => {
    const element = document.createElement(tag);
    if (text !== undefined) element.textContent = text;
    if (className) element.className = className;
    parent.append(element);
    return element;
  };
  const fill = (select, labels) => {
    select.replaceChildren();
    labels.forEach((label, place) => { add(select, "option", label).value = String(place); });
  };
  const block = (title, texts, className) => {
    const section = add(shown, "section", undefined, className);
    add(section, "h3", title);
    for (const text of texts) add(section, "pre", text);
  };
  const roles = { assistant: "assistant", command: "command", tool: "command" };

  const show = (stepPlace, samplePlace) => {
    const step = steps[stepPlace], sample = step.samples[samplePlace];
    if (stepSelect.value !== String(stepPlace) || !sampleSelect.options.length) {
      stepSelect.value = String(stepPlace);
      fill(sampleSelect, step.samples.map((one) => one.label));
    }
    sampleSelect.value = String(samplePlace);
    shown.replaceChildren();
    const facts = add(shown, "dl");
    for (const [name, value] of [["rollout", step.id], ...sample.facts]) {
      add(facts, "dt", name);
      add(facts, "dd", value);
    }
    for (const [role, content] of sample.messages) {
      block(role === "command" ? "command output" : role, [content], roles[role]);
    }
    if (!sample.messages.length) add(shown, "p", "No messages in the dump.", "muted");
    if (sample.commands.length) block("commands", sample.commands, "command");
    if (sample.verifier !== null) block("verifier output", [sample.verifier || "(empty)"], "verifier");
    else add(shown, "p", "No verifier output: the trial's folder is not there (--trials-dir).", "muted");
    byId("previous").disabled = stepPlace === 0 && samplePlace === 0;
    byId("next").disabled = stepPlace === steps.length - 1 && samplePlace === step.samples.length - 1;
    history.replaceState(null, "", `#step=${step.id}&sample=${samplePlace}`);
  };

  const move = (by) => {
    let step = Number(stepSelect.value), sample = Number(sampleSelect.value) + by;
    if (sample < 0 || sample >= steps[step].samples.length) {
      step += by;
      if (step < 0 || step >= steps.length) return;
      sampleSelect.replaceChildren();
      sample = by > 0 ? 0 : steps[step].samples.length - 1;
    }
    show(step, sample);
  };

  const fromAddress = () => {
    const asked = new URLSearchParams(location.hash.slice(1));
    const step = steps.findIndex((one) => String(one.id) === asked.get("step"));
    if (step < 0) return false;
    const sample = Number(asked.get("sample"));
    sampleSelect.replaceChildren();
    show(step, Number.isInteger(sample) && sample >= 0 && sample < steps[step].samples.length ? sample : 0);
    return true;
  };

  fill(stepSelect, steps.map((step) => step.label));
  stepSelect.addEventListener("change", () => { sampleSelect.replaceChildren(); show(Number(stepSelect.value), 0); });
  sampleSelect.addEventListener("change", () => show(Number(stepSelect.value), Number(sampleSelect.value)));
  byId("previous").addEventListener("click", () => move(-1));
  byId("next").addEventListener("click", () => move(1));
  addEventListener("hashchange", () => { if (fromAddress()) shown.focus(); });
  byId("chooser").hidden = false;
  if (!fromAddress()) show(steps.length - 1, 0);
})();
