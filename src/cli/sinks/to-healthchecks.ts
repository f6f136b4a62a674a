import { nodePortAddresses } from '../../portal/node-addresses.ts';
import { defineSink } from '../command.ts';
import { checkedText } from '../flags/kinds.ts';
import { checkNodeName, NODE_FLAGS } from '../flags/node.ts';
import { flag, group } from '../flags/table.ts';

export const toHealthChecks = defineSink({
  word: 'to-healthchecks',
  summary: 'Answer load balancers on the health-check node ports of services',
  description: [
    'For each service with externalTrafficPolicy Local and a health-check node port: HTTP on that port ' +
      'tells how many of its endpoints are on this node, with status 200 if there are any and 503 ' +
      'otherwise. Nothing is proxied. to-userspace does the same beside its own work.',
    'The servers for metrics and health run only if their flags are given.',
  ],
  examples: [
    {
      line: 'local to-healthchecks --ip 192.0.2.0/24',
      does: 'answers on the addresses of one network, beside a proxy that does not',
    },
  ],
  flags: {
    ...NODE_FLAGS,
    ...group('Addresses', {
      ip: flag(
        checkedText('ip|cidr', (given) => {
          if (given !== '') nodePortAddresses([given], []);
        }),
        '',
        'Where to listen: an address, or a network that stands for the addresses of the host in it. ' +
          'Empty: every address.',
      ),
    }),
  },
  read: (values) => ({ nodeName: checkNodeName(values['node-name']), ip: values.ip }),
  async start({ ip }) {
    const { createHealthChecks } = await import('./health-checks.ts');
    const sink = await createHealthChecks({ addresses: ip === '' ? [] : [ip] });
    const close = (): Promise<void> => sink.close();
    return { sink, close, destroy: close };
  },
});
