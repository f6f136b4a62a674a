/** Messages of problems, one text for each cause. */
import type { ErrorCode } from '../errors.ts';
import { type PortalProblem, portalText } from '../portal/portal.ts';
import type { ListenSpec, Protocol } from '../proxysocket/spec.ts';
import type { Problem } from './events.ts';

/** A listener that could not be opened. */
export interface ListenFailure {
  readonly servicePort: string;
  readonly protocol: Protocol;
  readonly listen: ListenSpec;
  readonly code: ErrorCode;
  /** The system's error code, such as EADDRNOTAVAIL. */
  readonly cause: string;
}

/** The common cause of listener failures: they are one problem. */
export function causeOf(failure: ListenFailure): string {
  return failure.code === 'KPNG_LISTEN_FAILED' ? `${failure.code} ${failure.cause}` : failure.code;
}

/**
 * One problem for all listeners with one cause. `first`: the one to name; `holder`: the process that listens there,
 * if known.
 */
export function listenProblem(
  first: ListenFailure,
  count: number,
  platform: NodeJS.Platform,
  holder?: string,
): Problem {
  const where = portalText({ ...first.listen, protocol: first.protocol });
  const what =
    count === 1
      ? `cannot listen on ${where} for ${first.servicePort}`
      : `cannot listen on ${count} addresses (first: ${where} for ${first.servicePort})`;
  return {
    code: first.code,
    servicePort: first.servicePort,
    count,
    message: `${what}: ${why(first, platform, holder)}; retrying`,
  };
}

function why(
  failure: ListenFailure,
  platform: NodeJS.Platform,
  holder: string | undefined,
): string {
  const { code, listen, protocol, cause } = failure;
  if (code === 'KPNG_LISTEN_ADDRESS_NOT_AVAILABLE') {
    return `the host does not have the address; ${addAddress(listen.address, platform)}, or use another --portal`;
  }
  if (code === 'KPNG_LISTEN_ADDRESS_IN_USE') {
    const found = findHolder(listen.port, protocol, platform);
    const whose = `another program listens there, or on every address with that port; ${found}, and`;
    const what = holder === undefined ? whose : `${holder} listens there;`;
    return `${what} stop it or give one of the two another port`;
  }
  if (code === 'KPNG_LISTEN_PERMISSION') {
    return `the process may not listen on the port; ${allowPort(listen.port, platform)}`;
  }
  if (code === 'KPNG_LIMIT_REACHED') {
    return (
      'no file descriptor left for listeners, which each worker opens for itself; ' +
      'raise the limit (ulimit -n, LimitNOFILE in systemd) or use fewer --workers'
    );
  }
  return `the system says ${cause}`;
}

function addAddress(address: string, platform: NodeJS.Platform): string {
  const bits = address.includes(':') ? 128 : 32;
  if (platform === 'win32') {
    const family = bits === 32 ? 'ipv4' : 'ipv6';
    const mask = bits === 32 ? ' 255.255.255.255' : '';
    return `add it to an interface (netsh interface ${family} add address "Loopback Pseudo-Interface 1" ${address}${mask})`;
  }
  if (platform === 'linux') {
    return `add it to an interface (ip addr add ${address}/${bits} dev lo), let the program do so (--portal-interface)`;
  }
  return `add it to an interface (ifconfig lo0 alias ${address}/${bits})`;
}

function findHolder(port: number, protocol: Protocol, platform: NodeJS.Platform): string {
  if (platform === 'win32') return `find it (netstat -abn -p ${protocol}, port ${port})`;
  if (platform !== 'linux') return `find it (lsof -nP -i ${protocol}:${port})`;
  return `find it (ss -${protocol === 'TCP' ? 't' : 'u'}lnp 'sport = :${port}')`;
}

function allowPort(port: number, platform: NodeJS.Platform): string {
  if (platform === 'win32') {
    return (
      'Windows may have reserved it (netsh interface ipv4 show excludedportrange protocol=tcp), a program ' +
      `may use it exclusively (netstat -abn, port ${port}), or it needs an administrator`
    );
  }
  if (platform !== 'linux') return 'run it as an administrator, or find out what reserves the port';
  return (
    'give it the capability CAP_NET_BIND_SERVICE, or lower the first port that needs it ' +
    `(sysctl net.ipv4.ip_unprivileged_port_start=${port})`
  );
}

/** One problem for all portals that are missing for the same reason: one or more. */
export function portalProblem(all: readonly PortalProblem[]): Problem {
  // The named portal does not depend on their order, so it changes only if necessary.
  const first = all.reduce((a, b) => (b.message < a.message ? b : a));
  const count = all.reduce((sum, { count: each = 1 }) => sum + each, 0);
  const more = count === 1 ? '' : `, and ${count - 1} more of this kind`;
  const { code, servicePort, message } = first;
  return { code, servicePort, count, message: `${message}${more}` };
}
