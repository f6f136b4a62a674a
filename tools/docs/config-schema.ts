import {
  fieldName,
  OWN_API_VERSION,
  OWN_COMMAND,
  OWN_KIND,
  type FieldSchema,
  type JsonType,
  KUBE_PROXY_API_VERSION,
  KUBE_PROXY_FIELDS,
  KUBE_PROXY_KIND,
  type FieldRule,
  type FieldRules,
} from '../../src/config/fields.ts';
import { configurableFlags } from '../../src/cli/parse.ts';
import type { FlagSpec } from '../../src/cli/flags/table.ts';

type Schema = Readonly<Record<string, unknown>>;

/** The JSON schema of one document of a configuration file, for editors: schema/configuration.schema.json. */
export function configSchema(): Schema {
  const flags = configurableFlags();
  return {
    $schema: 'http://json-schema.org/draft-07/schema#',
    title: 'Configuration of kpng-userspace',
    description: 'One document of the file of --config. A file may have one of each kind.',
    type: 'object',
    required: ['apiVersion', 'kind'],
    properties: { kind: { enum: [OWN_KIND, KUBE_PROXY_KIND] } },
    if: { properties: { kind: { const: KUBE_PROXY_KIND } } },
    // oxlint-disable-next-line unicorn/no-thenable -- the word of JSON schema
    then: { $ref: '#/definitions/kubeProxy' },
    else: { $ref: '#/definitions/own' },
    definitions: { own: ownKind(flags), kubeProxy: kubeProxyKind(flags) },
  };
}

type Flags = ReadonlyMap<string, FlagSpec<unknown>>;

function ownKind(flags: Flags): Schema {
  const fields = [...flags].map(([flag, spec]) => [fieldName(flag), valueSchema(spec)]);
  return {
    type: 'object',
    additionalProperties: false,
    properties: {
      apiVersion: { const: OWN_API_VERSION },
      kind: { const: OWN_KIND },
      [OWN_COMMAND]: {
        description: 'Words of the command that the file stands for, without flags.',
        type: ['string', 'array', 'null'],
        items: { type: 'string' },
      },
      ...Object.fromEntries(fields),
    },
  };
}

function kubeProxyKind(flags: Flags): Schema {
  const { properties, ...rest } = objectOf(KUBE_PROXY_FIELDS, flags);
  const head = { apiVersion: { const: KUBE_PROXY_API_VERSION }, kind: { const: KUBE_PROXY_KIND } };
  return { ...rest, properties: Object.assign(head, properties) };
}

function objectOf(rules: FieldRules, flags: Flags): Schema {
  const fields = Object.entries(rules).map(([name, rule]) => [name, ruleSchema(rule, flags)]);
  return { type: 'object', additionalProperties: false, properties: Object.fromEntries(fields) };
}

function ruleSchema(rule: FieldRule, flags: Flags): Schema {
  if (rule.kind === 'object') return { ...objectOf(rule.fields, flags), type: ['object', 'null'] };
  if (rule.kind === 'ignored') return { description: `Has no effect: ${rule.why}.` };
  const spec = flags.get(rule.flag);
  if (spec === undefined) throw new Error(`there is no flag --${rule.flag}`);
  // Empty texts stand for defaults, so no pattern holds.
  const { type } = spec.kind.schema;
  return { type: orNull(type), description: `--${rule.flag}: ${spec.help}` };
}

function valueSchema({ kind, help }: FlagSpec<unknown>): Schema {
  const { type, enum: words, ...rest } = kind.schema;
  const schema: Schema = { description: help, type: orNull(type), ...rest };
  return words === undefined ? schema : { ...schema, enum: [...words, null] };
}

function orNull(type: FieldSchema['type']): readonly (JsonType | 'null')[] {
  return [...(typeof type === 'string' ? [type] : type), 'null'];
}
