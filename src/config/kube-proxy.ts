import { messageOf } from '../errors.ts';
import type { DocumentSettings, Setting } from './config-file.ts';
import type { ConfigDocument, ConfigEntry } from './documents.ts';
import type { Field, Fields } from './field.ts';
import { KUBE_PROXY_FIELDS, type FieldRules } from './kube-proxy-fields.ts';
import { problemOf, settingOf, unknownField } from './own-kind.ts';
import type { ConfigProblem } from './problem.ts';

/** apiVersion and kind of kube-proxy's document. */
export const KUBE_PROXY_API_VERSION = 'kubeproxy.config.k8s.io/v1alpha1';
export const KUBE_PROXY_KIND = 'KubeProxyConfiguration';

/** The command that replaces kube-proxy. */
const COMMAND = ['kube', 'to-local', 'to-userspace'] as const;

/**
 * Parses a kube-proxy document. What does not apply here causes a warning; a field that kube-proxy does not have is
 * an error, as with its own strict decoding.
 */
export function readKubeProxy(document: ConfigDocument, fields: Fields): DocumentSettings {
  const byFlag = new Map([...fields.values()].map((field) => [field.flag, field]));
  const found = new Reading(byFlag);
  found.read(document.entries, KUBE_PROXY_FIELDS);
  const { settings, warnings, problems } = found;
  return { settings, command: COMMAND, warnings, problems };
}

class Reading {
  readonly settings: Setting[] = [];
  readonly warnings: ConfigProblem[] = [];
  readonly problems: ConfigProblem[] = [];
  readonly #byFlag: ReadonlyMap<string, Field>;

  constructor(byFlag: ReadonlyMap<string, Field>) {
    this.#byFlag = byFlag;
  }

  read(entries: readonly ConfigEntry[], rules: FieldRules): void {
    for (const entry of entries) {
      try {
        this.#readOne(entry, rules);
      } catch (error) {
        this.problems.push(problemOf(entry, messageOf(error)));
      }
    }
  }

  #readOne(entry: ConfigEntry, rules: FieldRules): void {
    const rule = Object.hasOwn(rules, entry.key) ? rules[entry.key] : undefined;
    if (rule === undefined) throw new Error(unknownField(entry.key, Object.keys(rules)));
    switch (rule.kind) {
      case 'flag': {
        const field = this.#byFlag.get(rule.flag);
        if (field === undefined) throw new Error(`--${rule.flag} is not in this version`);
        const value = rule.convert === undefined ? entry.value : rule.convert(entry.value);
        this.settings.push(...settingOf(entry, field, value));
        return;
      }
      case 'object':
        if (entry.entries !== undefined) this.read(entry.entries, rule.fields);
        else if (entry.value !== null) throw new Error('expected an object');
        return;
      case 'only':
        if (rule.values.some((value) => value === (entry.value ?? ''))) return;
        this.warnings.push(problemOf(entry, `has no effect: ${rule.why}`));
        return;
      case 'ignored':
        if (isEmpty(entry.value)) return;
        this.warnings.push(problemOf(entry, `has no effect: ${rule.why}`));
    }
  }
}

/** Generated files name every field, most of them with an empty value. */
function isEmpty(value: unknown): boolean {
  if (typeof value === 'object' && value !== null) return Object.values(value).every(isEmpty);
  return value === null || value === false || NOTHING.has(value);
}

const NOTHING: ReadonlySet<unknown> = new Set(['', 0, '0', '0s']);
