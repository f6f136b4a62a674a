import type { ConfigFile, DocumentSettings, Setting } from './config-file.ts';
import { readDocuments, type ConfigDocument, type ReadDocuments } from './documents.ts';
import type { Fields } from './field.ts';
import { KUBE_PROXY_API_VERSION, KUBE_PROXY_KIND, readKubeProxy } from './kube-proxy.ts';
import { OWN_API_VERSION, OWN_KIND, readOwnKind } from './own-kind.ts';
import type { ConfigProblem } from './problem.ts';

/** The result of resolving a configuration file. */
export type Resolved =
  | { readonly ok: true; readonly config: ConfigFile }
  | { readonly ok: false; readonly problems: readonly ConfigProblem[] };

interface Kind {
  readonly kind: string;
  readonly apiVersion: string;
  read(document: ConfigDocument, fields: Fields): DocumentSettings;
}

/** In the order of precedence: a later one overrides. */
const KINDS: readonly Kind[] = [
  { kind: KUBE_PROXY_KIND, apiVersion: KUBE_PROXY_API_VERSION, read: readKubeProxy },
  { kind: OWN_KIND, apiVersion: OWN_API_VERSION, read: readOwnKind },
];

/**
 * Resolves a configuration file, from its text or its parsed documents: at most one document of each kind, in any
 * order. Our own kind overrides. Finds all problems of the file at once.
 */
export function resolveConfig(
  path: string,
  content: string | ReadDocuments,
  fields: Fields,
): Resolved {
  const { documents, problems: found } =
    typeof content === 'string' ? readDocuments(content) : content;
  const problems = [...found];
  if (documents.length === 0 && problems.length === 0) {
    problems.push({ line: 0, column: 0, field: '', message: 'there is no document in the file' });
  }
  const byKind = new Map<Kind, DocumentSettings>();
  for (const document of documents) {
    const kind = KINDS.find((each) => each.kind === document.kind);
    const wrong = wrongHead(document, kind, byKind);
    if (wrong !== undefined || kind === undefined) {
      problems.push({ line: document.line, column: 1, field: '', message: wrong ?? '' });
      continue;
    }
    const read = kind.read(document, fields);
    byKind.set(kind, read);
    problems.push(...read.problems);
  }
  if (problems.length > 0) return { ok: false, problems };
  const settings = new Map<string, Setting>();
  const warnings: ConfigProblem[] = [];
  let command: readonly string[] | undefined;
  for (const kind of KINDS) {
    const read = byKind.get(kind);
    for (const setting of read?.settings ?? []) settings.set(setting.flag, setting);
    warnings.push(...(read?.warnings ?? []));
    command = read?.command ?? command;
  }
  return { ok: true, config: { path, settings, command, warnings } };
}

function wrongHead(
  { apiVersion, kind }: ConfigDocument,
  known: Kind | undefined,
  seen: ReadonlyMap<Kind, unknown>,
): string | undefined {
  if (known === undefined) {
    return `unknown kind ${kind}; expected ${KINDS.map((each) => each.kind).join(' or ')}`;
  }
  if (apiVersion !== known.apiVersion) {
    return `unknown apiVersion ${apiVersion} of ${kind}; expected ${known.apiVersion}`;
  }
  return seen.has(known) ? `a second document of the kind ${kind}` : undefined;
}
