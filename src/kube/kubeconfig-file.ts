import { createReadStream } from 'node:fs';
import { dirname, isAbsolute, join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { formatBytes } from '../util/bytes.ts';
import { parseYaml } from '../util/yaml.ts';
import { isObject, list, object, text, texts, type Json } from './json.ts';

/** A user's headers that KubeConfig does not know of. */
export type ExtraHeaders = Readonly<Record<string, string | string[]>>;

/** The content of a kubeconfig file, in the form that KubeConfig reads, and the fields that it does not read. */
export interface KubeconfigFile {
  readonly config: string;
  readonly extraHeaders: ReadonlyMap<string, ExtraHeaders>;
}

/**
 * Reads a kubeconfig file and corrects what KubeConfig of @kubernetes/client-node 2.0.1 does differently
 * from kubectl: it does not know `tokenFile` (kubeadm's kube-proxy has it), and nothing of
 * impersonated groups; paths of token files and commands are not relative to the file; and programs
 * that fetch credentials get no KUBERNETES_EXEC_INFO. Throws an Error that says what is wrong.
 */
export async function readKubeconfig(path: string): Promise<KubeconfigFile> {
  const content = await readYaml(path);
  if (!isObject(content)) throw new Error('it is empty, or not a kubeconfig');
  const extraHeaders = new Map<string, ExtraHeaders>();
  const users = namedIn(content, 'user').map(({ name, value }) => {
    extraHeaders.set(name, headersOf(value));
    return { name, user: { ...value, ...tokenFileOf(value, path), ...execOf(value, path) } };
  });
  const clusters = namedIn(content, 'cluster').map(({ name, value }) => ({ name, cluster: value }));
  const contexts = namedIn(content, 'context').map(({ name, value }) => ({ name, context: value }));
  return { config: JSON.stringify({ ...content, clusters, contexts, users }), extraHeaders };
}

/** A list of the file; KubeConfig has no clear error for an entry with anything but a name and an object. */
function namedIn(content: Json, kind: string): { readonly name: string; readonly value: Json }[] {
  return list(content[`${kind}s`]).map((entry, index) => {
    const { name, [kind]: given } = object(entry);
    const value = given ?? {};
    if (typeof name === 'string' && isObject(value)) return { name, value };
    throw new Error(`${kind}s[${index}]: expected a name and a ${kind}`);
  });
}

const MAX_BYTES = 1 << 20;
const YAML_LIMITS = { maxDepth: 50, maxAliasedValues: 10_000 };

async function readYaml(path: string): Promise<unknown> {
  // It may be a pipe, whose size is not known.
  const bytes = await buffer(createReadStream(path, { end: MAX_BYTES }));
  if (bytes.length > MAX_BYTES) throw new Error(`it is larger than ${formatBytes(MAX_BYTES)}`);
  const parsed = parseYaml(bytes.toString(), YAML_LIMITS);
  if (!parsed.ok) {
    const before = bytes.toString().slice(0, parsed.problem.offset).split('\n');
    throw new Error(`line ${before.length}: ${parsed.problem.message}`);
  }
  return parsed.documents[0]?.value;
}

function tokenFileOf(user: Json, path: string): Json {
  const tokenFile = text(user['tokenFile']);
  // As in kubectl, a token file overrides a token.
  if (tokenFile === '') return {};
  const config = { tokenFile: relativeTo(path, tokenFile) };
  return { token: undefined, 'auth-provider': { name: 'tokenFile', config } };
}

function execOf(user: Json, path: string): Json {
  const { exec } = user;
  if (!isObject(exec)) return {};
  const command = text(exec['command']);
  const info = {
    kind: 'ExecCredential',
    apiVersion: exec['apiVersion'],
    spec: { interactive: false },
  };
  const named = list(exec['env']);
  const env = [...named, { name: 'KUBERNETES_EXEC_INFO', value: JSON.stringify(info) }];
  const isPath = command.includes('/') || command.includes('\\');
  return { exec: { ...exec, command: isPath ? relativeTo(path, command) : command, env } };
}

function headersOf(user: Json): ExtraHeaders {
  const groups = texts(user['as-groups']);
  const uid = text(user['as-uid']);
  const headers: Record<string, string | string[]> = {};
  if (groups.length > 0) headers['Impersonate-Group'] = groups;
  if (uid !== '') headers['Impersonate-Uid'] = uid;
  return headers;
}

function relativeTo(file: string, path: string): string {
  return isAbsolute(path) ? path : join(dirname(file), path);
}
