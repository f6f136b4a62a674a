import type { IncomingMessage } from 'node:http';
import type { TLSSocket } from 'node:tls';

export interface FakeApiAuth {
  /** Bearer tokens that are good, with the user that they stand for. May be changed at any time. */
  readonly tokens?: Map<string, string>;
}

/** The user of a request; undefined: not known, to be refused. Without rules everybody is anonymous. */
export function userOf(
  request: IncomingMessage,
  auth: FakeApiAuth | undefined,
): string | undefined {
  if (auth === undefined) return 'system:anonymous';
  const token = /^Bearer (.+)$/.exec(request.headers.authorization ?? '')?.[1];
  if (token !== undefined) return auth.tokens?.get(token);
  const socket = request.socket as Partial<TLSSocket>;
  if (socket.authorized !== true || socket.getPeerCertificate === undefined) return undefined;
  const { CN } = socket.getPeerCertificate().subject;
  return Array.isArray(CN) ? CN[0] : CN;
}

/** Whom the fake server knows, and what they may do. */
export class FakeReviews {
  /** Bearer tokens, with the user that each stands for. */
  readonly tokens = new Map<string, { username: string; groups: string[] }>();
  /** Paths that members of a group may get. */
  readonly allowed = new Map<string, string[]>();
  /** Kinds of the reviews that were asked for, oldest first. */
  readonly asked: string[] = [];

  /** The answer to a review; undefined for requests that are none. */
  async answer(path: string, request: IncomingMessage): Promise<object | undefined> {
    const kind = KINDS[path];
    if (kind === undefined || request.method !== 'POST') return undefined;
    const parts: Buffer[] = [];
    for await (const part of request) parts.push(part as Buffer);
    const review = JSON.parse(Buffer.concat(parts).toString('utf8')) as Review;
    this.asked.push(kind);
    if (review.kind !== kind) throw new Error(`${review.kind} at ${path}`);
    const status = kind === 'TokenReview' ? this.#login(review) : this.#access(review);
    return { ...review, status };
  }

  #login({ spec: { token = '' } }: Review): object {
    const user = this.tokens.get(token);
    return user === undefined
      ? { authenticated: false, user: {}, error: 'invalid bearer token' }
      : { authenticated: true, user: { ...user, uid: `uid-of-${user.username}` } };
  }

  #access({ spec: { groups = [], nonResourceAttributes: { path = '', verb = '' } = {} } }: Review) {
    const may = groups.some((group) => this.allowed.get(group)?.includes(path) === true);
    return { allowed: verb === 'get' && may };
  }
}

const KINDS: Readonly<Record<string, string>> = {
  '/apis/authentication.k8s.io/v1/tokenreviews': 'TokenReview',
  '/apis/authorization.k8s.io/v1/subjectaccessreviews': 'SubjectAccessReview',
};

interface Review {
  readonly kind: string;
  readonly spec: {
    readonly token?: string;
    readonly groups?: string[];
    readonly nonResourceAttributes?: { readonly path?: string; readonly verb?: string };
  };
}
