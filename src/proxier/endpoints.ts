import type { PortMapping } from '../api/generated/localv1/api.ts';
import { KpngError } from '../errors.ts';
import type { EndpointSpec } from '../proxysocket/spec.ts';
import type { ServiceEntry } from '../store/local-view.ts';
import { canonicalAddress, isPort } from './address.ts';
import { resolvePort } from './resolve-port.ts';

/** The endpoints behind one service port, and what cannot be used of them. */
export interface ResolvedEndpoints {
  readonly endpoints: readonly EndpointSpec[];
  readonly problems: readonly KpngError[];
}

/**
 * The endpoints of one service port: one for each address of each endpoint that serves it, both
 * families alike. An endpoint without scopes may be used for all traffic; one with neither scope
 * stays in the list, so that what runs on it can end in peace.
 *
 * An endpoint that lists other ports and not this one does not serve it; that is not an error as
 * long as some other endpoint does.
 */
export function endpointsOf(
  servicePort: string,
  port: PortMapping,
  entry: ServiceEntry,
  portNames: ReadonlySet<string>,
): ResolvedEndpoints {
  const byAddress = new Map<string, EndpointSpec>();
  let badAddress: string | undefined;
  let badPort: string | undefined;
  let noPort: string | undefined;
  let notServed: string | undefined;
  for (const [key, endpoint] of entry.endpoints) {
    const number = resolvePort(port, endpoint, portNames);
    if (number === undefined) {
      if (endpoint.portOverrides.length === 0) noPort ??= key;
      else notServed ??= key;
      continue;
    }
    if (!isPort(number)) {
      badPort ??= `${key} (${number})`;
      continue;
    }
    const { v4 = [], v6 = [] } = endpoint.ips ?? {};
    if (v4.length + v6.length === 0) badAddress ??= key;
    for (const text of [...v4, ...v6]) {
      const address = canonicalAddress(text);
      if (address === undefined) {
        badAddress ??= `${key} (${JSON.stringify(text)})`;
        continue;
      }
      const { internal, external } = endpoint.scopes ?? { internal: true, external: true };
      const same = byAddress.get(`${address} ${number}`);
      byAddress.set(`${address} ${number}`, {
        address,
        port: number,
        internal: internal || same?.internal === true,
        external: external || same?.external === true,
      });
    }
  }
  const problems: KpngError[] = [];
  const leftOut = (example: string | undefined, reason: string): void => {
    if (example === undefined) return;
    // No numbers in here: the text would be a new problem whenever an endpoint comes or goes.
    const message = `${servicePort}: endpoints ${reason} are left out, such as ${example}`;
    problems.push(new KpngError('KPNG_SERVICE_INVALID', message, { servicePort }));
  };
  leftOut(badAddress, 'without a valid IP address');
  leftOut(badPort, 'whose port is not 1 to 65535');
  if (byAddress.size === 0) noPort ??= notServed;
  leftOut(noPort, `without a port ${portWanted(port)}`);
  return { endpoints: [...byAddress.values()], problems };
}

function portWanted({ name, targetPortName }: PortMapping): string {
  const names = [...new Set([name, targetPortName])].filter((each) => each !== '');
  return names.length === 0 ? 'or target port' : `named ${names.join(' or ')}`;
}
