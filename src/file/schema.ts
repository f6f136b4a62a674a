import { readFileSync } from 'node:fs';
import { isIPv4, isIPv6 } from 'node:net';
import { Ajv, type ErrorObject } from 'ajv';
import { isMappedIPv4 } from '../store/ip-set.ts';
import { bundledText } from '../util/bundle.ts';

/** The JSON schema, shipped with the program for editors too. */
export const SCHEMA_URL = new URL('../../schema/state-file.schema.json', import.meta.url);

/** Checks a value against the JSON schema and returns what is wrong. */
export type Validator = (value: unknown) => readonly ErrorObject[];

/** The part of a JSON schema that messages use. */
export interface SchemaPart {
  readonly $ref?: string;
  readonly title?: string;
  readonly format?: string;
  readonly type?: string | readonly string[];
  readonly properties?: Readonly<Record<string, SchemaPart>>;
  readonly items?: SchemaPart;
  readonly definitions?: Readonly<Record<string, SchemaPart>>;
  readonly minimum?: number;
  readonly maximum?: number;
  readonly maxLength?: number;
  readonly enum?: readonly unknown[];
  readonly examples?: readonly unknown[];
}

/** The JSON schema itself. */
export const SCHEMA = JSON.parse(
  bundledText('state-file.schema.json') ?? readFileSync(SCHEMA_URL, 'utf8'),
) as SchemaPart;

const ajv = new Ajv({
  allErrors: true,
  verbose: true,
  allowUnionTypes: true,
  ownProperties: true,
  formats: { ipv4: isIPv4, ipv6: isPlainIPv6, cidr: isCidr },
}).addSchema(SCHEMA, 'file');

/** Checks a file without its service items. */
export const validateFile = validator('file');
export const validateServiceItem = validator('file#/definitions/serviceItem');

function validator($ref: string): Validator {
  const validate = ajv.compile({ $ref });
  return (value) => (validate(value) ? [] : (validate.errors ?? []));
}

/** An address valid under `v6`: no zone, not an IPv4-mapped address. */
function isPlainIPv6(text: string): boolean {
  return isIPv6(text) && !text.includes('%') && !isMappedIPv4(text);
}

/** `address/prefix` of either family. Bits after the prefix may be set, as Kubernetes allows. */
function isCidr(text: string): boolean {
  const [address = '', prefix = '', ...more] = text.split('/');
  if (more.length > 0) return false;
  if (!/^(?:0|[1-9]\d{0,2})$/.test(prefix)) return false;
  if (isIPv4(address)) return Number(prefix) <= 32;
  return isPlainIPv6(address) && Number(prefix) <= 128;
}
