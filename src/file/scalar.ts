/** Texts, lists and maps on one line of YAML. */

/** What can stand without quotes, in a flow collection as well. */
const PLAIN = /^[A-Za-z][A-Za-z0-9._/-]*$/;
/** Looks like a number, but no reader takes it for one. */
const IPV4 = /^\d{1,3}(?:\.\d{1,3}){3}(?:\/\d{1,2})?$/;
/** Words that are no texts for YAML 1.1, which kpng reads. */
const WORDS = /^(?:null|true|false|yes|no|on|off|y|n)$/i;
/** What may not stand in YAML as it is, and what JSON leaves as it is. */
// oxlint-disable-next-line no-control-regex
const UNPRINTABLE = /[\u007f-\u009f\u2028\u2029\ufeff]/g;

/** A text, quoted where it must be. */
export function text(value: string): string {
  if ((PLAIN.test(value) && !WORDS.test(value)) || IPV4.test(value)) return value;
  return JSON.stringify(value).replace(
    UNPRINTABLE,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}

/** A list of texts. */
export function texts(values: readonly string[]): string {
  return `[${values.map(text).join(', ')}]`;
}

/** A map of texts, in order of the keys. */
export function textMap(map: Readonly<Record<string, string>>): string {
  const keys = Object.keys(map).sort();
  return `{${keys.map((key) => `${text(key)}: ${text(map[key] ?? '')}`).join(', ')}}`;
}
