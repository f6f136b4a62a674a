import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Resource } from './objects.ts';

/** What the server answers when it does not answer with objects. */
export interface StatusReply {
  readonly code: number;
  readonly reason?: string;
  readonly message?: string;
  /** Seconds. */
  readonly retryAfter?: number;
}

const REASONS: Readonly<Record<number, string>> = {
  400: 'BadRequest',
  401: 'Unauthorized',
  403: 'Forbidden',
  404: 'NotFound',
  410: 'Expired',
  429: 'TooManyRequests',
  500: 'InternalError',
  503: 'ServiceUnavailable',
  504: 'Timeout',
};

/** The body, which is also the object of an ERROR event. */
export function statusObject({ code, reason, message }: StatusReply): Record<string, unknown> {
  return {
    kind: 'Status',
    apiVersion: 'v1',
    metadata: {},
    status: 'Failure',
    message: message ?? REASONS[code] ?? `status ${code}`,
    reason: reason ?? REASONS[code] ?? 'Unknown',
    code,
  };
}

export function sendStatus(response: ServerResponse, reply: StatusReply): void {
  const { code, retryAfter } = reply;
  const headers = retryAfter === undefined ? {} : { 'Retry-After': String(retryAfter) };
  sendJson(response, code, statusObject(reply), headers);
}

export function sendJson(
  response: ServerResponse,
  code: number,
  body: unknown,
  headers: Record<string, string> = {},
): void {
  const text = `${JSON.stringify(body)}\n`;
  response.writeHead(code, {
    'Content-Type': 'application/json',
    'Content-Length': Buffer.byteLength(text),
    ...headers,
  });
  response.end(text);
}

/** The words of the real server for what the user may not do. */
export function forbidden(
  user: string,
  verb: string,
  resource: string,
  group: string,
): StatusReply {
  const what = `${resource} is forbidden: User ${JSON.stringify(user)} cannot ${verb} resource`;
  return {
    code: 403,
    message: `${what} ${JSON.stringify(resource)} in API group ${JSON.stringify(group)} at the cluster scope`,
  };
}

/** Whether the client asked for metadata only. */
export function wantsMetadata(request: IncomingMessage): boolean {
  return /as=PartialObjectMetadata(?:List)?[;,]/.test(request.headers.accept ?? '');
}

/** How the server treats requests, instead of answering them. */
export type Fault =
  /** Answers with a status. */
  | { readonly kind: 'status'; readonly reply: StatusReply }
  /** Takes the request and never answers. */
  | { readonly kind: 'silent' }
  /** Answers with a body of any text. */
  | { readonly kind: 'body'; readonly text: string }
  /** Begins with a body of any text, and never ends it. */
  | { readonly kind: 'stall'; readonly text: string }
  /** Answers with a space now and then, without end. */
  | { readonly kind: 'drip' }
  /** Answers as always, but only when the promise has resolved. */
  | { readonly kind: 'wait'; readonly until: Promise<void> };

export type Verb = 'list' | 'watch' | 'get' | 'create';

export interface FaultRule {
  readonly fault: Fault;
  /** Default: all. */
  readonly resource?: Resource | undefined;
  /** Default: all. */
  readonly verb?: Verb | undefined;
  /** How many requests it concerns. Default: all until it is taken back. */
  readonly times?: number | undefined;
}

/** The rules in force. The first one that matches counts. */
export class Faults {
  #rules: { rule: FaultRule; left: number }[] = [];

  /** Adds a rule; returns the function that takes it back. */
  add(rule: FaultRule): () => void {
    const entry = { rule, left: rule.times ?? Number.POSITIVE_INFINITY };
    this.#rules.push(entry);
    return () => {
      this.#rules = this.#rules.filter((other) => other !== entry);
    };
  }

  take(resource: Resource, verb: Verb): Fault | undefined {
    const entry = this.#rules.find(
      ({ rule, left }) =>
        left > 0 &&
        (rule.resource === undefined || rule.resource === resource) &&
        (rule.verb === undefined || rule.verb === verb),
    );
    if (entry !== undefined) entry.left -= 1;
    return entry?.rule.fault;
  }
}
