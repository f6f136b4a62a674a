/**
 * Errors with stable codes.
 *
 * Every error that a user can see carries one of the codes below. The table is documented in
 * docs/reference/errors.md, and a test keeps the two equal.
 */

/** The meaning of each code, and whether the program retries. */
export const ERROR_CODES = {
  KPNG_NODE_TOO_OLD: { summary: 'The library needs a newer Node.', retried: false },
  KPNG_USAGE: { summary: 'A flag or command is wrong.', retried: false },
  KPNG_CONFIG_READ: { summary: 'The configuration file cannot be read.', retried: true },
  KPNG_CONFIG_INVALID: {
    summary: 'The configuration file has an error; a running program keeps the previous settings.',
    retried: true,
  },
  KPNG_CONFIG_NOT_LIVE: {
    summary: 'A changed setting takes effect only at the next start.',
    retried: false,
  },
  KPNG_TLS_FILE: {
    summary: 'A TLS key, certificate or CA file is missing, invalid or expired.',
    retried: false,
  },
  KPNG_STATE_FILE_READ: { summary: 'The state file cannot be read.', retried: true },
  KPNG_STATE_FILE_INVALID: {
    summary: 'The state file has an error; the last good state is served.',
    retried: true,
  },
  KPNG_STATE_FILE_LIMIT: {
    summary:
      'The state file exceeds a limit of size, memory or time; the last good state is served.',
    retried: true,
  },
  KPNG_NODE_UNKNOWN: {
    summary: 'The source has nodes, but not the one of --node-name.',
    retried: true,
  },
  KPNG_SOURCE_LOST: {
    summary: 'The source is unreachable; the last known state is served.',
    retried: true,
  },
  KPNG_STATE_TOO_LARGE: {
    summary: 'A source sends more state than is accepted; the last known state is served.',
    retried: true,
  },
  KPNG_KUBECONFIG: {
    summary: 'The configuration for the Kubernetes API is missing or invalid.',
    retried: false,
  },
  KPNG_KUBE_UNAUTHORIZED: {
    summary: 'The Kubernetes API refused the credentials; the last known state is served.',
    retried: true,
  },
  KPNG_KUBE_FORBIDDEN: {
    summary: 'The Kubernetes API refused a request that is needed.',
    retried: true,
  },
  KPNG_OP_INVALID: {
    summary: 'The kpng server sent an invalid operation; it is skipped.',
    retried: false,
  },
  KPNG_SERVICE_INVALID: {
    summary: 'A part of a service cannot be proxied; the rest is.',
    retried: false,
  },
  KPNG_SERVICE_TOO_LARGE: {
    summary: 'A service exceeds a limit for one service; the rest of it is proxied.',
    retried: false,
  },
  KPNG_UNSUPPORTED_PROTOCOL: {
    summary: 'A service port uses a protocol other than TCP and UDP.',
    retried: false,
  },
  KPNG_PORTAL_CONFLICT: {
    summary:
      'Another service port holds the address and port; or another program uses the packet mark or the routing table.',
    retried: true,
  },
  KPNG_PORTAL_TOOL_MISSING: { summary: 'A program that a portal needs is missing.', retried: true },
  KPNG_PORTAL_PERMISSION: {
    summary: 'The process may not change the packet rules or addresses of the host.',
    retried: true,
  },
  KPNG_PORTAL_UNSUPPORTED: {
    summary: 'The kernel or the tool lacks something that a portal needs.',
    retried: true,
  },
  KPNG_PORTAL_LOCKED: {
    summary: 'Another program held the lock of iptables for too long.',
    retried: true,
  },
  KPNG_PORTAL_FAILED: { summary: 'Packet rules or addresses could not be written.', retried: true },
  KPNG_PORTAL_TAKEN: {
    summary: 'Another process writes packet rules of the same name.',
    retried: true,
  },
  KPNG_PORTAL_SHARED: {
    summary: 'Another process redirects the same traffic with packet rules of another kind.',
    retried: true,
  },
  KPNG_LISTEN_ADDRESS_NOT_AVAILABLE: {
    summary: 'The host does not have the address.',
    retried: true,
  },
  KPNG_LISTEN_ADDRESS_IN_USE: {
    summary: 'Another program listens on the address and port.',
    retried: true,
  },
  KPNG_LISTEN_PERMISSION: { summary: 'The process may not listen on the port.', retried: true },
  KPNG_LISTEN_FAILED: { summary: 'Listening failed for another reason.', retried: true },
  KPNG_PORT_RANGE_EXHAUSTED: { summary: 'No proxy port is left in the range.', retried: true },
  KPNG_NO_ENDPOINT: {
    summary: 'The service port has no endpoint for this client.',
    retried: false,
  },
  KPNG_DRAINED: {
    summary: 'All endpoints that the client could have are drained.',
    retried: false,
  },
  KPNG_PROXY_HEADER: {
    summary: 'A connection of a load balancer did not begin with a valid PROXY protocol header.',
    retried: false,
  },
  KPNG_ENDPOINT_LOOP: {
    summary: 'An endpoint is an address of the service itself; it is skipped.',
    retried: true,
  },
  KPNG_CONNECT_FAILED: { summary: 'No endpoint accepted the connection.', retried: false },
  KPNG_LIMIT_REACHED: { summary: 'A limit of the process was reached.', retried: true },
  KPNG_ENGINE_UNFIT: {
    summary: 'The requested engine cannot work here.',
    retried: false,
  },
  KPNG_CALLOUT_FAILED: {
    summary: 'The callout could not be run, or failed.',
    retried: true,
  },
  KPNG_ADMIN_SOCKET: {
    summary: 'The admin socket or the status page cannot be opened.',
    retried: true,
  },
  KPNG_ADMIN_UNREACHABLE: {
    summary: 'No running proxy answers on the admin socket.',
    retried: false,
  },
  KPNG_ADMIN_REFUSED: {
    summary: 'The running proxy refused the command.',
    retried: false,
  },
  KPNG_HANDOVER_FAILED: {
    summary: 'The other process of a hand-over violates its protocol.',
    retried: false,
  },
  KPNG_WRAPPER_FAILED: {
    summary: 'The service wrapper (NSSM) failed.',
    retried: false,
  },
  KPNG_SINK_FAILED: { summary: 'A sink failed to apply a change set.', retried: true },
} as const satisfies Record<string, { summary: string; retried: boolean }>;

export type ErrorCode = keyof typeof ERROR_CODES;

/** The message of anything thrown. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** An error with a stable code, optionally about one service port. */
export class KpngError extends Error {
  override readonly name = 'KpngError';
  readonly code: ErrorCode;
  /** `namespace/name:port` of the service port concerned, if any. */
  readonly servicePort: string | undefined;

  constructor(
    code: ErrorCode,
    message: string,
    options: { cause?: unknown; servicePort?: string } = {},
  ) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.code = code;
    this.servicePort = options.servicePort;
  }

  /** Whether the program retries. */
  get retried(): boolean {
    return ERROR_CODES[this.code].retried;
  }
}
