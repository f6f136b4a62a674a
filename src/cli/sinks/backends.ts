import { nodePortAddresses } from '../../portal/node-addresses.ts';
import { JsonSink, streamWriter } from '../../sinks/json.ts';
import type { PortRange } from '../../util/port-range.ts';
import { defineSink, examples, paragraphs } from '../command.ts';
import type { CommandText, RunContext, SinkCommand } from '../command.ts';
import { IPTABLES_FLAVOR_FLAGS, NODE_FLAGS } from '../flags/backend.ts';
import { duration, size, text, textLike, toggle } from '../flags/kinds.ts';
import { flag, group } from '../flags/table.ts';
import { readUserspace, userspaceFlags } from './userspace-options.ts';

const toJson = defineSink({
  word: 'to-json',
  summary: 'Print the state of this node as JSON at every change, as kpng-json does',
  description: paragraphs`
    Prints one line of JSON for each service with its endpoints, all of them at every change, for jq and
    scripts. Nothing is proxied. When the reader closes standard output, the program exits with 0.

    The servers for metrics and health run only if their flags are given.`,
  examples: examples`
    local to-json | jq . # shows what a kpng server sends to this node
    file -i state.yaml to-json # shows what a state file means for this node`,
  flags: NODE_FLAGS,
  async start(_options, context) {
    const { write, ended } = outputOf(context);
    return { sink: new JsonSink(write), ended };
  },
});

export const toCallout = defineSink({
  word: 'to-callout',
  summary: 'Run a program at every change, with the state as JSON on its standard input',
  description: paragraphs`
    The program gets one line of JSON for each service with its endpoints, as to-json prints them, all of them
    at every change. It runs without arguments and without a shell, one run at a time; changes that arrive
    meanwhile are merged into the next run. Its output is printed, followed by an empty line.

    A run that exits with a code other than 0, takes too long or cannot be started is logged with the end of its
    standard error, counted, and retried with growing delays.`,
  examples: examples`
    local to-callout --callout ./apply-state.sh # runs a script at every change of a kpng server
    file -i state.yaml to-callout --callout jq # shows what a state file means for this node, in colour`,
  flags: {
    ...NODE_FLAGS,
    ...group('Callout', {
      callout: flag(
        textLike('program', 'the path of a program, or a name on the PATH', /^[^\0]+$/),
        '/bin/cat',
        { env: 'CALLOUT' },
      )`
        The program: a path, or a name on the PATH. No arguments can be given.`,
      'callout-timeout': flag(duration(), 60_000)`
        Time limit of a run, which then gets SIGTERM and two seconds later SIGKILL. 0: no limit.`,
      'callout-max-output': flag(size(0), 64 * 1024 * 1024)`
        Maximum output of a run, which is kept in memory until the run has succeeded.`,
    }),
  },
  async start({ callout, calloutTimeout, calloutMaxOutput }, context) {
    const { CalloutSink } = await import('../../sinks/callout.ts');
    const { write, ended } = outputOf(context);
    const sink = new CalloutSink({
      program: callout,
      timeoutMs: calloutTimeout,
      maxOutput: calloutMaxOutput,
      write,
    });
    return { sink, ended, destroy: () => sink.destroy() };
  },
});

/** Writes to standard output; `ended` resolves when its reader has closed it. */
function outputOf({ stdout, log }: RunContext) {
  const readerGone = Promise.withResolvers<void>();
  const write = streamWriter(stdout, () => {
    log.v(1, 'Standard output closed by its reader; stopping');
    readerGone.resolve();
  });
  return { write, ended: readerGone.promise };
}

const toExtip = defineSink({
  word: 'to-extip',
  summary: 'Redirect external IPs to endpoints with iptables, as kpng’s iptables-extip',
  description: paragraphs`
    For a machine to which external IPs of services are routed. Keeps three chains up to date, by default
    k8s-forward in the table filter, and k8s-DNAT and k8s-SNAT in the table nat. Add rules to FORWARD,
    PREROUTING and POSTROUTING that jump to them.

    The chains stay when the program exits.`,
  examples: examples`
    local to-extip --dry-run | head # prints the commands for the first complete state
    local to-extip --load-balancers-only # skips services of other types`,
  flags: {
    ...NODE_FLAGS,
    ...group('Rules', {
      'load-balancers-only': flag(toggle, false)`Only services of the type LoadBalancer.`,
      'iptables-chain-prefix': flag(
        textLike(
          'text',
          'up to 20 letters, digits, dashes and underscores',
          /^[A-Za-z0-9_][\w-]{0,19}$/,
        ),
        'k8s-',
      )`
        Prefix of the names of the chains.`,
    }),
    ...IPTABLES_FLAVOR_FLAGS,
    ...group('Rules', {
      'dry-run': flag(toggle, false)`Print the commands for the first complete state and exit.`,
    }),
  },
  async start(options, { log, stdout }) {
    const { loadBalancersOnly, iptablesChainPrefix: chainPrefix, iptablesFlavor, dryRun } = options;
    const { ExtipSink } = await import('../../sinks/extip.ts');
    const { systemExec, dryExec } = await import('../../portal/exec.ts');
    const { iptablesTools } = await import('./userspace-portal.ts');
    const done = Promise.withResolvers<void>();
    const exec = dryRun ? dryExec(streamWriter(stdout, () => done.resolve())) : systemExec;
    const tools = iptablesTools(exec, iptablesFlavor, log, dryRun);
    const sink = new ExtipSink({ loadBalancersOnly, chainPrefix, exec, tools });
    const inPlace = async () => done.resolve();
    return { sink, ended: done.promise, ...(dryRun && { inPlace }) };
  },
});

const toHealthChecks = defineSink({
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
    const { HealthCheckSink } = await import('../../sinks/healthchecks.ts');
    const sink = new HealthCheckSink({ wanted: ip === '' ? [] : [ip] });
    return { sink, destroy: () => sink.close() };
  },
});

function userspace(
  texts: Pick<CommandText, 'word' | 'summary' | 'examples'>,
  ports?: PortRange,
): SinkCommand {
  return defineSink({
    ...texts,
    description: paragraphs`
      Accepts the connections of clients, dials an endpoint of the service and carries the bytes. Nothing is
      opened before the first complete state has arrived.`,
    flags: userspaceFlags(ports),
    read: readUserspace,
    async start(options, context) {
      if (options.dryRun) {
        const { startDryRun } = await import('./dry-run.ts');
        return startDryRun(options, context);
      }
      const { startUserspace } = await import('./userspace-runtime.ts');
      return startUserspace(options, context);
    },
  });
}

export const BACKENDS: readonly SinkCommand[] = [
  userspace({
    word: 'to-userspace',
    summary: 'Proxy TCP and UDP in this process',
    examples: examples`
    file -i state.yaml to-local to-userspace -v=4 # proxies a state file and logs every connection
    local to-userspace --nodeport-addresses 10.0.0.0/8 --udp-idle-timeout 1m # opens node ports on one network and keeps UDP sessions for a minute
    local to-userspace --portal none --port-range 36000-37000 # opens proxy ports only; you route clients to them`,
  }),
  userspace({
    word: 'to-userspacelin',
    summary: 'to-userspace with the defaults of kpng on Linux',
    examples: examples`local to-userspacelin # replaces kpng’s Linux userspace backend`,
  }),
  userspace(
    {
      word: 'to-winuserspace',
      summary: 'to-userspace with the defaults of kpng on Windows',
      examples: examples`
      local -api=127.0.0.1:12090 to-winuserspace -v=4 # replaces kpng’s Windows userspace backend`,
    },
    { first: 36_000, last: 37_000 },
  ),
  toJson,
  toCallout,
  toExtip,
  toHealthChecks,
];
