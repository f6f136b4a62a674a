/**
 * Errors with stable codes.
 *
 * Every error that a user can see carries one of the codes below. The table is documented in
 * docs/reference/errors.md, and a test keeps the two equal.
 */

const final = (summary: string) => ({ summary, retried: false }) as const;
const retried = (summary: string) => ({ summary, retried: true }) as const;

/** The meaning of each code, and whether the program retries. */
export const ERROR_CODES = {
  KPNG_NODE_TOO_OLD: final('The library needs a newer Node.'),
  KPNG_USAGE: final('A flag or command is wrong.'),
  KPNG_CONFIG_READ: retried('The configuration file cannot be read.'),
  KPNG_CONFIG_INVALID: retried(
    'The configuration file has an error; a running program keeps the previous settings.',
  ),
  KPNG_CONFIG_NOT_LIVE: final('A changed setting takes effect only at the next start.'),
  KPNG_TLS_FILE: final('A TLS key, certificate or CA file is missing, invalid or expired.'),
  KPNG_STATE_FILE_READ: retried('The state file cannot be read.'),
  KPNG_STATE_FILE_INVALID: retried('The state file has an error; the last good state is served.'),
  KPNG_STATE_FILE_LIMIT: retried(
    'The state file exceeds a limit of size, memory or time; the last good state is served.',
  ),
  KPNG_NODE_UNKNOWN: retried('The source has nodes, but not the one of --node-name.'),
  KPNG_SOURCE_LOST: retried('The source is unreachable; the last known state is served.'),
  KPNG_STATE_TOO_LARGE: retried(
    'A source sends more state than is accepted; the last known state is served.',
  ),
  KPNG_KUBECONFIG: final('The configuration for the Kubernetes API is missing or invalid.'),
  KPNG_KUBE_UNAUTHORIZED: retried(
    'The Kubernetes API refused the credentials; the last known state is served.',
  ),
  KPNG_KUBE_FORBIDDEN: retried('The Kubernetes API refused a request that is needed.'),
  KPNG_OP_INVALID: final('The kpng server sent an invalid operation; it is skipped.'),
  KPNG_SERVICE_INVALID: final('A part of a service cannot be proxied; the rest is.'),
  KPNG_SERVICE_TOO_LARGE: final(
    'A service exceeds a limit for one service; the rest of it is proxied.',
  ),
  KPNG_UNSUPPORTED_PROTOCOL: final('A service port uses a protocol other than TCP and UDP.'),
  KPNG_PORTAL_CONFLICT: retried(
    'Another service port holds the address and port; or another program uses the packet mark or the routing table.',
  ),
  KPNG_PORTAL_TOOL_MISSING: retried('A program that a portal needs is missing.'),
  KPNG_PORTAL_PERMISSION: retried(
    'The process may not change the packet rules or addresses of the host.',
  ),
  KPNG_PORTAL_UNSUPPORTED: retried('The kernel or the tool lacks something that a portal needs.'),
  KPNG_PORTAL_LOCKED: retried('Another program held the lock of iptables for too long.'),
  KPNG_PORTAL_FAILED: retried('Packet rules or addresses could not be written.'),
  KPNG_PORTAL_TAKEN: retried('Another process writes packet rules of the same name.'),
  KPNG_PORTAL_SHARED: retried(
    'Another process redirects the same traffic with packet rules of another kind.',
  ),
  KPNG_LISTEN_ADDRESS_NOT_AVAILABLE: retried('The host does not have the address.'),
  KPNG_LISTEN_ADDRESS_IN_USE: retried('Another program listens on the address and port.'),
  KPNG_LISTEN_PERMISSION: retried('The process may not listen on the port.'),
  KPNG_LISTEN_FAILED: retried('Listening failed for another reason.'),
  KPNG_PORT_RANGE_EXHAUSTED: retried('No proxy port is left in the range.'),
  KPNG_NO_ENDPOINT: final('The service port has no endpoint for this client.'),
  KPNG_DRAINED: final('All endpoints that the client could have are drained.'),
  KPNG_PROXY_HEADER: final(
    'A connection of a load balancer did not begin with a valid PROXY protocol header.',
  ),
  KPNG_ENDPOINT_LOOP: retried('An endpoint is an address of the service itself; it is skipped.'),
  KPNG_CONNECT_FAILED: final('No endpoint accepted the connection.'),
  KPNG_LIMIT_REACHED: retried('A limit of the process was reached.'),
  KPNG_ENGINE_UNFIT: final('The requested engine cannot work here.'),
  KPNG_CALLOUT_FAILED: retried('The callout could not be run, or failed.'),
  KPNG_ADMIN_SOCKET: retried('The admin socket or the status page cannot be opened.'),
  KPNG_ADMIN_UNREACHABLE: final('No running proxy answers on the admin socket.'),
  KPNG_ADMIN_REFUSED: final('The running proxy refused the command.'),
  KPNG_HANDOVER_FAILED: final('The other process of a hand-over violates its protocol.'),
  KPNG_WRAPPER_FAILED: final('The service wrapper (NSSM) failed.'),
  KPNG_SINK_FAILED: retried('A sink failed to apply a change set.'),
} as const;

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
