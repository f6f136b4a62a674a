import type { IncomingMessage, ServerResponse } from 'node:http';

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
