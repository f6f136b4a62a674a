import { KpngError } from '../errors.ts';
import { formatHostPort, isLoopback, parseHostPort } from '../util/host-port.ts';
import { socketPathProblem } from '../util/socket-file.ts';

/** The listen address of the API; only `parseListen` creates it. */
export type ListenAddress =
  | {
      readonly kind: 'tcp';
      readonly host: string;
      readonly port: number;
      /** Only this family on a wildcard address; undefined: both. */
      readonly family: 4 | 6 | undefined;
    }
  | { readonly kind: 'unix'; readonly path: string };

export const DEFAULT_LISTEN = 'tcp://127.0.0.1:12090';

/**
 * Reads `tcp://ip:port`, `tcp4://`, `tcp6://`, the same without a scheme, or `unix://path` and
 * `unix:path`. An empty host means every address. Fails with KPNG_USAGE.
 */
export function parseListen(text: string): ListenAddress {
  const fail = (problem: string): never => {
    throw new KpngError('KPNG_USAGE', `--listen ${JSON.stringify(text)}: ${problem}`);
  };
  const [, scheme = 'tcp', rest = ''] = /^(?:(tcp[46]?|unix):(?:\/\/)?)?(.*)$/s.exec(text) ?? [];
  if (scheme === 'unix') {
    const problem = socketPathProblem(rest);
    return problem === undefined ? { kind: 'unix', path: rest } : fail(problem);
  }
  const address = parseHostPort(rest.replace(/^localhost:/, '127.0.0.1:'));
  if (address === undefined) {
    const unknown = /^([A-Za-z][A-Za-z0-9+.-]*):\/\//.exec(rest)?.[1];
    return fail(
      unknown === undefined
        ? `expected an address such as ${DEFAULT_LISTEN}, tcp://:12090 or unix:///run/kpng.sock`
        : `the scheme "${unknown}" is not known; there are tcp, tcp4, tcp6 and unix`,
    );
  }
  if (scheme === 'tcp') return { kind: 'tcp', ...address, family: undefined };
  const family = scheme === 'tcp4' ? 4 : 6;
  if (address.host !== '' && address.host.includes(':') !== (family === 6)) {
    return fail(`the address is not one of IPv${family}`);
  }
  return { kind: 'tcp', ...address, family };
}

/** Formats an address as in the flag. */
export function formatListen(address: ListenAddress): string {
  if (address.kind === 'unix') return `unix://${address.path}`;
  return `tcp${address.family ?? ''}://${formatHostPort(address)}`;
}

/** Whether other hosts can reach it. */
export function isExposed(address: ListenAddress): boolean {
  return address.kind === 'tcp' && !isLoopback(address.host);
}
