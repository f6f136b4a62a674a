import { isMap, type Node } from 'yaml';
import { hasAlias } from './aliases.ts';
import { offsetBefore, type Split } from './pieces.ts';
import { locatorIn, readJson, type ReadResult } from './reading.ts';
import { hasEmptyKey, parseYaml, toPlain } from './yaml.ts';

/**
 * Reads what is left of a text after the list under `key` was cut out: a map, with places in the text
 * as it was before. `mapOf` finds it in the YAML document.
 *
 * Undefined when it turns out that the text must not be cut there: the key is none, or an alias may
 * refer to what was cut out.
 */
export function readHead(
  split: Split,
  key: string,
  mapOf: (contents: Node | null) => unknown,
): ReadResult | undefined {
  const reading = split.form === 'json' ? readJson(split.rest) : readBlockHead(split, key, mapOf);
  if (reading === undefined) return undefined;
  if (!reading.ok) {
    const errors = reading.errors.map((error) => {
      return { ...error, offset: offsetBefore(split, error.offset) };
    });
    return { ok: false, errors };
  }
  return {
    ok: true,
    value: reading.value,
    locate: (segments, atKey) => offsetBefore(split, reading.locate(segments, atKey)),
  };
}

function readBlockHead(
  { rest, keyAt }: Split,
  key: string,
  mapOf: (contents: Node | null) => unknown,
): ReadResult | undefined {
  const yaml = parseYaml(rest);
  if (!yaml.ok) return undefined;
  const { document } = yaml;
  const map = mapOf(document.contents);
  if (!isMap(map) || !hasEmptyKey(map, key, keyAt) || hasAlias(map)) return undefined;
  const value = toPlain(map, document);
  return { ok: true, value, locate: locatorIn(document, map) };
}
