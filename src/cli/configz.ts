import { OWN_API_VERSION, OWN_COMMAND, OWN_KIND } from '../config/field.ts';
import {
  KUBE_PROXY_API_VERSION,
  KUBE_PROXY_FIELDS,
  KUBE_PROXY_KIND,
  type FieldRules,
} from '../config/kube-proxy-fields.ts';
import type { LiveSettings } from './live-settings.ts';
import type { JsonValue } from './settings.ts';

/** A document of a configuration file, as plain data. */
export type PlainDocument = Readonly<Record<string, unknown>>;

/**
 * The content of the page /configz: the settings in force, one document of each kind. kube-proxy's document has the
 * same key as on its own page, and only the fields that apply here. `verbosity` is the current log verbosity, which
 * may be changed without a file.
 */
export function configz(
  { settings: configured, command }: Pick<LiveSettings, 'settings' | 'command'>,
  verbosity: number,
): {
  readonly 'kubeproxy.config.k8s.io': PlainDocument;
  readonly 'kpng-userspace': PlainDocument;
} {
  const settings = configured.map((setting) =>
    setting.flag === 'v' ? { ...setting, value: verbosity } : setting,
  );
  const byFlag = new Map<string, JsonValue>(settings.map(({ flag, value }) => [flag, value]));
  return {
    'kubeproxy.config.k8s.io': {
      apiVersion: KUBE_PROXY_API_VERSION,
      kind: KUBE_PROXY_KIND,
      mode: 'userspace',
      ...kubeProxyFields(KUBE_PROXY_FIELDS, byFlag),
    },
    'kpng-userspace': {
      apiVersion: OWN_API_VERSION,
      kind: OWN_KIND,
      [OWN_COMMAND]: command.join(' '),
      ...Object.fromEntries(settings.map(({ field, value }) => [field, value])),
    },
  };
}

function kubeProxyFields(
  rules: FieldRules,
  byFlag: ReadonlyMap<string, JsonValue>,
): Record<string, unknown> {
  const fields: Record<string, unknown> = {};
  for (const [name, rule] of Object.entries(rules)) {
    if (rule.kind === 'flag' && byFlag.has(rule.flag)) fields[name] = byFlag.get(rule.flag);
    if (rule.kind !== 'object') continue;
    const within = kubeProxyFields(rule.fields, byFlag);
    if (Object.keys(within).length > 0) fields[name] = within;
  }
  return fields;
}
