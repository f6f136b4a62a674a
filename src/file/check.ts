import { isIPv4, isIPv6 } from 'node:net';
import type { ErrorObject } from 'ajv';
import { closest } from '../util/suggest.ts';
import type { Segment } from '../util/yaml.ts';
import { flowText, shorten } from '../util/yaml-text.ts';
import type { Finding } from './problem.ts';
import {
  namespaceOf,
  protocolOf,
  type RawEndpoint,
  type RawPort,
  type RawServiceItem,
} from './raw.ts';
import { SCHEMA, type SchemaPart } from './schema.ts';

/** Findings beyond what the JSON schema can check. */
export interface ItemFindings {
  readonly errors: Finding[];
  /** The file is used, but parts of it have no effect. */
  readonly warnings: Finding[];
}

/** Checks that need more than one value of a service item. */
export function checkItem({ service, endpoints }: RawServiceItem): ItemFindings {
  const findings: ItemFindings = { errors: [], warnings: [] };
  const ports = service.ports ?? [];
  checkPorts(ports, findings);
  // An override applies to the name of a port and to that of its target port.
  const names = new Set(ports.flatMap((port) => [port.name ?? '', port.targetportname ?? '']));
  if (!ports.some(({ name }) => (name ?? '') === '')) names.delete('');
  const owner = { servicename: service.name, namespace: namespaceOf(service) };
  for (const [index, endpoint] of (endpoints ?? []).entries()) {
    const at = ['endpoints', index];
    checkOverrides(endpoint, [...at, 'endpoint', 'portoverrides'], names, findings);
    for (const key of ['servicename', 'namespace'] as const) {
      // kpng overwrites these two silently; a different value is most likely a mistake.
      const value = endpoint[key] ?? '';
      if (value === '' || value === owner[key]) continue;
      const message = `'${value}' is ignored; an endpoint belongs to the service above it (${owner[key]})`;
      findings.warnings.push({ segments: [...at, key], message });
    }
  }
  return findings;
}

const PROTOCOL_NAMES = ['', 'TCP', 'UDP', 'SCTP'] as const;

function checkPorts(ports: readonly RawPort[], { errors }: ItemFindings): void {
  const byName = new Map<string, number>();
  const byNumber = new Map<string, number>();
  for (const [index, { name: given, protocol, port }] of ports.entries()) {
    const at = ['service', 'ports', index];
    const name = given ?? '';
    const sameName = byName.get(name);
    if (sameName === undefined) byName.set(name, index);
    else if (name === '') {
      const message = `more than one port without a name (ports[${sameName}] has none either)`;
      errors.push({ segments: at, message });
    } else {
      const message = `duplicate port name '${name}' (see ports[${sameName}])`;
      errors.push({ segments: [...at, 'name'], message });
    }
    const number = `${PROTOCOL_NAMES[protocolOf(protocol)]} ${port}`;
    const sameNumber = byNumber.get(number);
    if (sameNumber === undefined) byNumber.set(number, index);
    else {
      const message = `duplicate port ${number} (see ports[${sameNumber}])`;
      errors.push({ segments: [...at, 'port'], message });
    }
  }
}

function checkOverrides(
  { endpoint }: RawEndpoint,
  segments: readonly Segment[],
  names: ReadonlySet<string>,
  { errors, warnings }: ItemFindings,
): void {
  const seen = new Set<string>();
  for (const [index, override] of (endpoint?.portoverrides ?? []).entries()) {
    const name = override.name ?? '';
    const at = [...segments, index, 'name'];
    if (seen.has(name)) {
      errors.push({ segments: at, message: `duplicate port override '${name}'` });
    } else if (!names.has(name)) {
      const message = `the service has no port '${name}'; the override has no effect`;
      warnings.push({ segments: at, message });
    }
    seen.add(name);
  }
}

/** Describes an error of the schema validator. `root`: the validated value. */
export function describe(error: ErrorObject, root: unknown): Finding {
  const segments = pointerSegments(error.instancePath, root);
  const schema = (error.parentSchema ?? {}) as SchemaPart;
  if (error.keyword === 'additionalProperties') {
    const key = String(error.params['additionalProperty']);
    return { segments: [...segments, key], atKey: true, message: unknownKey(key, schema) };
  }
  return { segments, message: messageOf(error, schema) };
}

function unknownKey(key: string, parent: SchemaPart): string {
  const message = `unknown key '${shorten(key)}'`;
  const similar = closest(key, Object.keys(parent.properties ?? {}));
  if (similar !== undefined) return `${message}; did you mean '${similar}'?`;
  const owner = ownerOf(key, parent);
  return owner === undefined ? message : `${message}; it belongs ${owner}`;
}

/**
 * Where an unknown key belongs, if it is valid one level below or above, as with wrong indentation: `under 'ips'`,
 * `beside 'service'`. Undefined: neither.
 */
function ownerOf(key: string, parent: SchemaPart): string | undefined {
  const below = Object.entries(parent.properties ?? {})
    .filter(([, part]) => has(resolve(part), key))
    .map(([name]) => `'${name}'`);
  if (below.length > 0) return `under ${below.join(' or ')}`;
  for (const object of [SCHEMA, ...Object.values(SCHEMA.definitions ?? {})]) {
    if (!has(object, key)) continue;
    for (const [name, part] of Object.entries(object.properties ?? {})) {
      if (resolve(part) === parent) return `beside '${name}'`;
    }
  }
  return undefined;
}

function has(part: SchemaPart | undefined, key: string): boolean {
  return part?.properties !== undefined && Object.hasOwn(part.properties, key);
}

/** The map that a part of the schema describes, or the items of its list. */
function resolve(part: SchemaPart): SchemaPart | undefined {
  if (part.$ref !== undefined) return SCHEMA.definitions?.[part.$ref.replace('#/definitions/', '')];
  return part.items === undefined ? part : resolve(part.items);
}

/** What follows `VALUE is not a …`, by keyword of the schema. */
const DETAILS: Readonly<Record<string, (value: unknown, schema: SchemaPart) => string>> = {
  minimum: (_, schema) => range(schema),
  maximum: (_, schema) => range(schema),
  pattern: () => " (letters, digits, '-', '_' and '.'; the first and the last a letter or digit)",
  format: addressHint,
  enum: choices,
};

function messageOf(
  { keyword, params, data, instancePath }: ErrorObject,
  schema: SchemaPart,
): string {
  const noun = nounFor(schema);
  if (keyword === 'required') return `'${String(params['missingProperty'])}' is missing`;
  if (keyword === 'maxLength') {
    return `${show(data)} is too long for ${noun} (at most ${schema.maxLength} characters)`;
  }
  if (keyword !== 'type') {
    return `${show(data)} is not ${noun}${DETAILS[keyword]?.(data, schema) ?? ''}`;
  }
  if (data === null) return `there is no value; it must be ${noun}${range(schema)}`;
  return `${show(data)} is not ${noun}${range(schema)}${remedy(data, schema, instancePath)}`;
}

/** How to correct a value of the wrong type, if that is obvious. */
function remedy(value: unknown, schema: SchemaPart, path: string): string {
  const types = new Set([schema.type].flat());
  const isPlain = typeof value === 'number' || typeof value === 'boolean';
  if (types.has('string')) {
    // An address that ends with a colon is parsed as a key.
    if (schema.format === 'ipv6' && typeof value === 'object') return '; put it in quotes';
    return schema.format === undefined && isPlain ? `; put it in quotes: "${value}"` : '';
  }
  if (types.has('integer') && typeof value === 'string') {
    if (/^\d+$/.test(value)) return '; remove the quotes';
    if (path.endsWith('/targetport')) return "; a name belongs under 'targetportname'";
  }
  const [example] = schema.examples ?? [];
  return example === undefined ? '' : `, such as ${flowText(example)}`;
}

function range(schema: SchemaPart): string {
  return schema.minimum === undefined ? '' : ` (${schema.minimum} to ${schema.maximum})`;
}

function choices(value: unknown, { enum: allowed = [] }: SchemaPart): string {
  const words = allowed.filter((word) => word !== '' && word !== null);
  const texts = words.filter((word) => typeof word === 'string');
  const suggestion = typeof value === 'string' ? closest(value, texts) : undefined;
  return suggestion === undefined ? ` (${words.join(', ')})` : `; did you mean ${suggestion}?`;
}

function addressHint(value: unknown, { format }: SchemaPart): string {
  const text = String(value);
  if (format === 'ipv4' && isIPv6(text)) return "; it belongs under 'v6'";
  if (format !== 'ipv6') return '';
  if (isIPv4(text)) return "; it belongs under 'v4'";
  if (!isIPv6(text)) return '';
  return text.includes('%') ? ': it has a zone' : ": it is an IPv4 address; write that under 'v4'";
}

/** What a value has to be, with an article. */
function nounFor({ title = 'value' }: SchemaPart): string {
  if (title === 'text') return title;
  if (title === 'boolean') return 'true or false';
  if (/^conditions$|^scopes$|hints$/.test(title)) return `a map of ${title}`;
  if (title.startsWith('addresses')) return `a map with the ${title}`;
  return `${/^[aeioAEIO]/.test(title) ? 'an' : 'a'} ${title}`;
}

function show(value: unknown): string {
  if (Array.isArray(value)) return 'a list';
  if (typeof value === 'object' && value !== null) return 'a map';
  return typeof value === 'string' ? JSON.stringify(shorten(value)) : String(value);
}

/** The steps of a JSON pointer; the value decides whether a number is an index. */
function pointerSegments(pointer: string, root: unknown): Segment[] {
  const segments: Segment[] = [];
  let value = root;
  for (const part of pointer.split('/').slice(1)) {
    const key = part.replaceAll('~1', '/').replaceAll('~0', '~');
    segments.push(Array.isArray(value) ? Number(key) : key);
    value = (value as Record<string, unknown>)[key];
  }
  return segments;
}
