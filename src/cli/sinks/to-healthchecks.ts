import { nodePortAddresses } from '../../portal/node-addresses.ts';
import { defineSink } from '../command.ts';
import { checkedText } from '../flags/kinds.ts';
import { NODE_FLAGS } from '../flags/backend.ts';
import { flag, group } from '../flags/table.ts';

export const toHealthChecks = defineSink({
  word: 'to-healthchecks',
  summary: 'Answer load balancers on the health-check node ports of services',
  description: [
    'Each health-check node port of a service with externalTrafficPolicy Local answers HTTP with the number of ' +
      'local endpoints: status 200 if there are any, else 503. Nothing is proxied. to-userspace does the ' +
      'same.',
    'The servers for metrics and health run only if their flags are given.',
  ],
  examples: {
    'local to-healthchecks --ip 192.0.2.0/24':
      'answers on the addresses of one network, beside a proxy that does not',
  },
  flags: {
    ...NODE_FLAGS,
    ...group('Addresses', {
      ip: flag(
        checkedText('ip|cidr', (given) => {
          if (given !== '') nodePortAddresses([given], []);
        }),
        '',
        {
          help: 'Address to listen on, or a network that selects addresses of the host. Empty: every address.',
        },
      ),
    }),
  },
  async start({ ip }) {
    const { createHealthChecks } = await import('./health-checks.ts');
    const sink = await createHealthChecks({ addresses: ip === '' ? [] : [ip] });
    const close = (): Promise<void> => sink.close();
    return { sink, close, destroy: close };
  },
});
