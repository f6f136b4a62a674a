import { defineSink } from '../command.ts';
import { IPTABLES_FLAVOR_FLAGS, NODE_FLAGS } from '../flags/backend.ts';
import { checkedText, toggle } from '../flags/kinds.ts';
import { flag, group } from '../flags/table.ts';

export const toExtip = defineSink({
  word: 'to-extip',
  summary: 'Redirect external IPs to endpoints with iptables, as kpng’s iptables-extip',
  description: [
    'For a machine to which external IPs of services are routed. Keeps three chains up to date, by default ' +
      'k8s-forward in the table filter, and k8s-DNAT and k8s-SNAT in the table nat. Add rules to FORWARD, ' +
      'PREROUTING and POSTROUTING that jump to them.',
    'The chains stay when the program exits.',
  ],
  examples: {
    'local to-extip --dry-run | head': 'prints the commands for the first complete state',
    'local to-extip --load-balancers-only': 'skips services of other types',
  },
  flags: {
    ...NODE_FLAGS,
    ...group('Rules', {
      'load-balancers-only': flag(toggle(), false, {
        help: 'Only services of the type LoadBalancer.',
      }),
      'iptables-chain-prefix': flag(
        checkedText('text', (given) => {
          if (!/^[A-Za-z0-9_][\w-]{0,19}$/.test(given))
            throw new Error('expected up to 20 letters, digits, dashes and underscores');
        }),
        'k8s-',
        { help: 'Prefix of the names of the chains.' },
      ),
    }),
    ...IPTABLES_FLAVOR_FLAGS,
    ...group('Rules', {
      'dry-run': flag(toggle(), false, {
        help: 'Print the commands for the first complete state and exit.',
      }),
    }),
  },
  async start(options, { log, stdout }) {
    const { loadBalancersOnly, iptablesChainPrefix: chainPrefix, iptablesFlavor, dryRun } = options;
    const [{ ExtipSink }, { streamWriter }, { systemExec, dryExec }, { iptablesTools }] =
      await Promise.all([
        import('../../sinks/extip.ts'),
        import('../../sinks/json.ts'),
        import('../../portal/exec.ts'),
        import('./portal-choice.ts'),
      ]);
    const done = Promise.withResolvers<void>();
    const exec = dryRun ? dryExec(streamWriter(stdout, () => done.resolve())) : systemExec;
    const tools = iptablesTools(exec, iptablesFlavor, log, dryRun);
    const sink = new ExtipSink({ loadBalancersOnly, chainPrefix, exec, tools });
    return {
      sink: {
        async sync(change) {
          await sink.sync(change);
          if (dryRun) done.resolve();
        },
      },
      ended: done.promise,
      close: async () => {},
      destroy: async () => {},
    };
  },
});
