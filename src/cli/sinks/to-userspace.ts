import { defineSink, type SinkCommand } from '../command.ts';
import { readUserspace, userspaceFlags, type Variant } from './userspace-options.ts';

function userspace(variant: Variant): SinkCommand {
  return defineSink({
    word: variant.word,
    summary: variant.summary,
    description: [
      'Accepts the connections of clients, dials an endpoint of the service and carries the bytes. ' +
        'Nothing is opened before the first complete state has arrived.',
    ],
    examples: variant.examples,
    servesByDefault: true,
    flags: userspaceFlags(variant),
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

export const toUserspace = userspace({
  word: 'to-userspace',
  summary: 'Proxy TCP and UDP in this process',
  portRange: undefined,
  examples: {
    'file -i state.yaml to-local to-userspace -v=4':
      'proxies a state file and logs every connection',
    'local to-userspace --nodeport-addresses 10.0.0.0/8 --udp-idle-timeout 1m':
      'opens node ports on one network and keeps UDP sessions for a minute',
    'local to-userspace --portal none --port-range 36000-37000':
      'opens proxy ports only; you route clients to them',
  },
});

export const toUserspaceLinux = userspace({
  word: 'to-userspacelin',
  summary: 'to-userspace with the defaults of kpng on Linux',
  portRange: undefined,
  examples: { 'local to-userspacelin': 'replaces kpng’s Linux userspace backend' },
});

export const toUserspaceWindows = userspace({
  word: 'to-winuserspace',
  summary: 'to-userspace with the defaults of kpng on Windows',
  portRange: { first: 36_000, last: 37_000 },
  examples: {
    'local -api=127.0.0.1:12090 to-winuserspace -v=4': 'replaces kpng’s Windows userspace backend',
  },
});
