import { BlockList, isIP } from 'node:net';
import { networkInterfaces } from 'node:os';
import type { BalancerEndpoint } from '../../roundrobin/types.ts';
import { isHostAddress } from '../../util/host-addresses.ts';
import type { ServicePort } from './service-port.ts';
import type { Traffic } from '../spec.ts';

/**
 * The address that an endpoint is to see as that of the client; undefined: one of the host. That is so where the
 * endpoint's answers would not pass this process: it is this host, or reaches the client past it.
 */
export function clientSource(
  { keepsClients }: Pick<ServicePort, 'keepsClients'>,
  request: { readonly traffic: Traffic; readonly client: string },
  { address, family }: Pick<BalancerEndpoint, 'address' | 'family'>,
): string | undefined {
  if (keepsClients === undefined || request.traffic === 'cluster') return undefined;
  if (keepsClients === 'external' && request.traffic !== 'external') return undefined;
  // It costs a system call.
  const { client } = request;
  if (isIP(client) !== family || client === address) return undefined;
  // A link-local address has no route from the endpoint.
  if (/^fe[89ab]/.test(client)) return undefined;
  if (isHostAddress(client) || isHostAddress(address)) return undefined;
  return shareLink(client, address, family) ? undefined : client;
}

/** How old the networks of the host may be. Milliseconds. */
const MAX_AGE_MS = 2000;

let known: { readonly networks: readonly BlockList[]; readonly readAt: number } | undefined;

/** Whether both addresses are in the network of one interface, such as a bridge, on which they reach each other. */
function shareLink(a: string, b: string, family: 4 | 6): boolean {
  const now = performance.now();
  if (known === undefined || now - known.readAt > MAX_AGE_MS) {
    known = { networks: linkNetworks(), readAt: now };
  }
  const type = family === 4 ? 'ipv4' : 'ipv6';
  return known.networks.some((network) => network.check(a, type) && network.check(b, type));
}

function linkNetworks(): BlockList[] {
  return Object.values(networkInterfaces()).flatMap((addresses = []) =>
    addresses.flatMap(({ address, cidr, family }) => {
      const list = new BlockList();
      const prefix = Number(cidr?.split('/')[1] ?? Number.NaN);
      if (Number.isNaN(prefix)) return [];
      list.addSubnet(address, prefix, family === 'IPv4' ? 'ipv4' : 'ipv6');
      return [list];
    }),
  );
}
