import { nodePortAddresses } from '../../portal/node-addresses.ts';
import type { HealthCheckSink } from '../../sinks/healthchecks.ts';
import { hostAddresses, type HostAddress } from '../../util/host-addresses.ts';
import { defineSink, examples, paragraphs } from '../command.ts';
import { text } from '../flags/kinds.ts';
import { NODE_FLAGS } from '../flags/backend.ts';
import { flag, group } from '../flags/table.ts';

export const toHealthChecks = defineSink({
  word: 'to-healthchecks',
  summary: 'Answer load balancers on the health-check node ports of services',
  description: paragraphs`
    Each health-check node port of a service with externalTrafficPolicy Local answers HTTP with the number of
    local endpoints: status 200 if there are any, else 503. Nothing is proxied. to-userspace does the same.

    The servers for metrics and health run only if their flags are given.`,
  examples: examples`
    local to-healthchecks --ip 192.0.2.0/24 # answers on the addresses of one network, beside a proxy that does not`,
  flags: {
    ...NODE_FLAGS,
    ...group('Addresses', {
      ip: flag(
        text('ip|cidr', (given) => {
          if (given !== '') nodePortAddresses([given], []);
        }),
        '',
      )`
        Address to listen on, or a network that selects addresses of the host. Empty: every address.`,
    }),
  },
  async start({ ip }) {
    const sink = await createHealthChecks(ip === '' ? [] : [ip]);
    return { sink, destroy: () => sink.close() };
  },
});

/**
 * `wanted`: networks, addresses, or `primary`, `localhost`, `all`; empty: every address of the host. `host`: its addresses
 * now. `healthy`: whether the proxy of this process works, if there is one.
 */
export async function createHealthChecks(
  wanted: readonly string[],
  host: () => readonly HostAddress[] = hostAddresses,
  healthy = (): boolean => true,
): Promise<HealthCheckSink> {
  const { HealthCheckSink } = await import('../../sinks/healthchecks.ts');
  // One listener serves all addresses of both families.
  const everywhere = wanted.length === 0 || wanted.includes('all');
  return new HealthCheckSink({
    addresses: () => (everywhere ? [''] : nodePortAddresses(wanted, host())),
    healthy,
  });
}
