// The page's description of the model.

/** The English name of a language. */
export function languageName(code) {
  try {
    return new Intl.DisplayNames(["en"], { type: "language" }).of(code);
  } catch {
    return code;
  }
}

/** The model's name and size, and the first paragraph of its card. */
export function about(model, names) {
  const title = model.title ? `${model.title} (${model.name}, ${size(model)})` : `${model.name} (${size(model)})`;
  const known = model.about ?? `A model of ${names[0]} and ${names[1]} without a model card.`;
  return `${title}. ${known}`;
}

function size({ parameters }) {
  return parameters < 1e6 ? `${Math.ceil(parameters / 1e3)}k parameters` : `${(parameters / 1e6).toFixed(1)}M parameters`;
}
