import { messageOf } from '../errors.ts';
import { closest } from '../util/suggest.ts';
import type { DocumentSettings, Setting } from './config-file.ts';
import type { ConfigDocument, ConfigEntry } from './documents.ts';
import { textOf, type Field, type Fields } from './field.ts';
import type { ConfigProblem } from './problem.ts';

/** apiVersion and kind of our own document. Its fields are the flags, in camel case, and `command`. */
export const OWN_API_VERSION = 'kpng-userspace/v1alpha1';
export const OWN_KIND = 'UserspaceProxyConfiguration';

/** The field with the words of the command line. */
export const COMMAND_FIELD = 'command';

/** Parses a document of our own kind. */
export function readOwnKind(document: ConfigDocument, fields: Fields): DocumentSettings {
  const settings: Setting[] = [];
  const problems: ConfigProblem[] = [];
  let command: readonly string[] | undefined;
  readEach(document.entries, problems, (entry) => {
    const field = fields.get(entry.key);
    if (entry.key === COMMAND_FIELD) command = words(entry.value);
    else if (field === undefined) throw new Error(unknownField(entry.key, [...fields.keys()]));
    else settings.push(...settingOf(entry, field));
  });
  return { settings, command, warnings: [], problems };
}

/** Reads fields one by one; the error of a field becomes a problem. */
export function readEach(
  entries: readonly ConfigEntry[],
  problems: ConfigProblem[],
  read: (entry: ConfigEntry) => void,
): void {
  for (const entry of entries) {
    try {
      read(entry);
    } catch (error) {
      problems.push(problemOf(entry, messageOf(error)));
    }
  }
}

/** The setting of a field; none if its value is null. Throws an error if it is invalid. */
export function settingOf(entry: ConfigEntry, field: Field, value = entry.value): Setting[] {
  const text = textOf(value, field.schema);
  if (text === undefined) return [];
  try {
    field.check(text);
  } catch (error) {
    throw new Error(`${JSON.stringify(value)}: ${messageOf(error)}`, { cause: error });
  }
  return [{ flag: field.flag, text, field: entry.path, line: entry.line }];
}

export function problemOf({ line, column, path }: ConfigEntry, message: string): ConfigProblem {
  return { line, column, field: path, message };
}

/** The error message for an unknown field. */
export function unknownField(key: string, known: readonly string[]): string {
  const meant = closest(key, known);
  return meant === undefined ? 'unknown field' : `unknown field; did you mean ${meant}?`;
}

/** `kube to-local to-userspace`, or the same as a list. */
function words(value: unknown): readonly string[] | undefined {
  if (value === null) return undefined;
  const given: unknown = typeof value === 'string' ? value.split(/\s+/) : value;
  const list: readonly unknown[] = Array.isArray(given) ? given : [];
  const texts = list.filter((word) => typeof word === 'string');
  const plain = texts.filter((word) => word !== '' && !word.startsWith('-'));
  if (plain.length > 0 && plain.length === list.length) return plain;
  throw new Error('expected the words of a command, without flags, such as kube to-userspace');
}
