import { createHash } from 'node:crypto';
import type { KubeApi } from './api.ts';
import { parseJson, readBody } from './body.ts';
import { KubeFailure } from './failure.ts';
import { object, list, text, type Json } from './json.ts';

/** The cluster's verdict on a token and a page. */
export type ReviewResult = 'allowed' | 'unauthenticated' | 'forbidden';

/** Limits of the cache and of concurrent reviews; each has a line in docs/reference/limits.md. */
export const REVIEW_LIMITS = {
  /** How long a review is cached, as with Kubernetes' own delegation. Milliseconds. */
  rememberMs: 10_000,
  /** Maximum number of cached reviews; the oldest is evicted. */
  maxRemembered: 256,
  /** Maximum number of concurrent reviews; more are refused. */
  maxPending: 16,
  /** Longest token; a longer one is refused. Characters. */
  maxTokenChars: 32_768,
  /** Largest answer that is read. Bytes. */
  maxResponseBytes: 256 * 1024,
  /** Time limit for a review. Milliseconds. */
  responseTimeoutMs: 5000,
} as const;

type Api = Pick<KubeApi, 'get' | 'clock'>;

/**
 * Lets the cluster review whose bearer token it is (TokenReview) and whether that user may get a path
 * (SubjectAccessReview). Reviews are briefly cached, and concurrent equal ones are merged. Every failure throws a
 * KubeFailure and is not cached: an error grants no access. `api`: its account needs the role system:auth-delegator.
 */
export function reviewsBy(api: Api) {
  const { maxTokenChars, maxPending, maxRemembered, rememberMs } = REVIEW_LIMITS;
  /** By a hash of token and path, oldest first: no token is kept. */
  const known = new Map<string, { readonly verdict: Promise<ReviewResult>; until: number }>();
  let pending = 0;
  return async (token: string, path: string): Promise<ReviewResult> => {
    if (token.length > maxTokenChars) return 'unauthenticated';
    const key = createHash('sha256').update(`${token}\n${path}`).digest('base64');
    const cached = known.get(key);
    if (cached !== undefined && cached.until > api.clock.now()) return cached.verdict;
    if (pending >= maxPending) {
      throw new KubeFailure('throttled', 'too many clients want to be authenticated at once');
    }
    pending += 1;
    const review = { verdict: request(api, token, path), until: Infinity };
    known.delete(key);
    known.set(key, review);
    const [oldest = ''] = known.keys();
    if (known.size > maxRemembered) known.delete(oldest);
    try {
      return await review.verdict;
    } catch (error) {
      known.delete(key);
      throw error;
    } finally {
      pending -= 1;
      review.until = api.clock.now() + rememberMs;
    }
  };
}

async function request(api: Api, token: string, path: string): Promise<ReviewResult> {
  const login = await post(api, 'authentication.k8s.io', 'TokenReview', { token });
  const user = object(login['user']);
  if (login['authenticated'] !== true || text(user['username']) === '') return 'unauthenticated';
  const access = await post(api, 'authorization.k8s.io', 'SubjectAccessReview', {
    user: text(user['username']),
    uid: text(user['uid']),
    groups: list(user['groups']).map(text),
    extra: object(user['extra']),
    nonResourceAttributes: { path, verb: 'get' },
  });
  return access['allowed'] === true && access['denied'] !== true ? 'allowed' : 'forbidden';
}

/** The status of a review. */
async function post(api: Api, group: string, kind: string, spec: object): Promise<Json> {
  const { maxResponseBytes: maxBytes, responseTimeoutMs: totalMs } = REVIEW_LIMITS;
  const what = `create ${kind}`;
  const request = {
    what,
    path: `/apis/${group}/v1/${kind.toLowerCase()}s`,
    query: {},
    accept: 'application/json',
    body: { apiVersion: `${group}/v1`, kind, spec },
  };
  const answer = await api.get(request, AbortSignal.timeout(2 * totalMs));
  const limits = { maxBytes, silenceMs: totalMs, totalMs };
  const body = await readBody(what, answer, limits, api.clock);
  return object(object(parseJson(body ?? '', `${what}: the response`))['status']);
}
