import type { KubeApi } from './api.ts';
import { readBody } from './body.ts';
import { KubeFailure } from './failure.ts';
import { type Json, isObject, list, object, text, versionOf } from './json.ts';
import { type Resource, requestFor } from './resource.ts';

/** The server, without its credentials. */
export type ListApi = Pick<KubeApi, 'get' | 'limits' | 'clock'>;

export interface Listed {
  /** The start of a watch. */
  readonly version: string;
  readonly objects: number;
  readonly pages: number;
}

/**
 * Lists a resource in pages and passes on its objects one by one, with the version of the list, without keeping them.
 * Without a requested version, the state is the newest and the server may page it. Throws a KubeFailure.
 */
export async function listAll(
  resource: Resource<unknown>,
  api: ListApi,
  signal: AbortSignal,
  onObject: (raw: Json, listVersion: string) => void,
): Promise<Listed> {
  const { limits, clock } = api;
  const what = `list ${resource.name}`;
  let { pageSize } = limits;
  let token = '';
  let objects = 0;
  let pages = 0;
  let bytes = 0;
  const startedAt = clock.now();
  for (;;) {
    if (pages >= limits.maxListPages) throw tooLarge(what, `${limits.maxListPages} pages`);
    const query = { limit: String(pageSize), ...(token !== '' && { continue: token }) };
    const answer = await api.get(requestFor(resource, 'list', query), signal);
    const bodyLimits = {
      maxBytes: limits.maxPageBytes,
      silenceMs: limits.pauseTimeoutMs,
      totalMs: startedAt + limits.listTimeoutMs - clock.now(),
    };
    const body = await readBody(what, answer, bodyLimits, clock);
    if (body === undefined) {
      if (pageSize === 1) throw malformed(what, `one object is over ${limits.maxPageBytes} bytes`);
      // The token remains valid with another page limit.
      pageSize = Math.ceil(pageSize / 4);
      continue;
    }
    bytes += body.length;
    if (bytes > limits.maxListBytes) throw tooLarge(what, `${limits.maxListBytes} bytes`);
    const page = parsePage(body, what);
    const version = versionOf(page);
    if (version === undefined) throw malformed(what, 'the list has no resourceVersion');
    for (const item of list(page['items'])) {
      if (!isObject(item)) throw malformed(what, 'an item is not an object');
      objects += 1;
      if (objects > limits.maxObjects) throw tooLarge(what, `${limits.maxObjects} objects`);
      onObject(item, version);
    }
    pages += 1;
    const previous = token;
    token = text(object(page['metadata'])['continue']);
    if (token !== '' && token === previous) {
      throw malformed(what, 'the list continues where it did before');
    }
    if (token === '') return { version, objects, pages };
  }
}

function parsePage(body: string, what: string): Json {
  let page: unknown;
  try {
    page = JSON.parse(body);
  } catch (cause) {
    throw malformed(what, 'the response is not JSON', cause);
  }
  if (isObject(page) && (page['items'] === null || Array.isArray(page['items']))) return page;
  throw malformed(what, 'the response is not a list');
}

export function tooLarge(what: string, limit: string): KubeFailure {
  return new KubeFailure('too-large', `${what}: more than ${limit}`);
}

function malformed(what: string, problem: string, cause?: unknown): KubeFailure {
  return new KubeFailure('malformed', `${what}: ${problem}`, { cause });
}
