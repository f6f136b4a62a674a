import type { DocumentSettings, Setting } from './config-file.ts';
import type { ConfigDocument, ConfigEntry } from './documents.ts';
import type { Fields } from './field.ts';
import { KUBE_PROXY_FIELDS, type FieldRules } from './kube-proxy-fields.ts';
import { problemOf, readEach, settingOf, unknownField } from './own-kind.ts';
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
  const settings: Setting[] = [];
  const warnings: ConfigProblem[] = [];
  const problems: ConfigProblem[] = [];
  const readWith = (rules: FieldRules) => (entry: ConfigEntry) => {
    const rule = Object.hasOwn(rules, entry.key) ? rules[entry.key] : undefined;
    if (rule === undefined) throw new Error(unknownField(entry.key, Object.keys(rules)));
    if (rule.kind === 'flag') {
      const field = byFlag.get(rule.flag);
      if (field === undefined) throw new Error(`--${rule.flag} is not in this version`);
      const value = rule.convert === undefined ? entry.value : rule.convert(entry.value);
      settings.push(...settingOf(entry, field, value));
    } else if (rule.kind === 'object') {
      if (entry.entries !== undefined) readEach(entry.entries, problems, readWith(rule.fields));
      else if (entry.value !== null) throw new Error('expected an object');
    } else if (!isEmpty(entry.value) && entry.value !== rule.always) {
      warnings.push(problemOf(entry, `has no effect: ${rule.why}`));
    }
  };
  readEach(document.entries, problems, readWith(KUBE_PROXY_FIELDS));
  return { settings, command: COMMAND, warnings, problems };
}

/** Generated files name every field, most of them with an empty value. */
function isEmpty(value: unknown): boolean {
  if (typeof value === 'object' && value !== null) return Object.values(value).every(isEmpty);
  return value === null || value === false || NOTHING.has(value);
}

const NOTHING: ReadonlySet<unknown> = new Set(['', 0, '0', '0s']);
