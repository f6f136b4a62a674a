import { describeMachine } from '../report/machine.ts';
import { asMarkdown } from '../report/table.ts';
import { PEER_NAME } from './kube-proxy.ts';
import type { PortalReport } from './result.ts';
import { changeRows, coldRows, comparison } from './table.ts';

/** The section of docs/benchmarks.md. */
export function renderSection(report: PortalReport): string {
  return `## Portals

Measured on ${report.date} on: ${describeMachine(report.machine)}; up to ${report.descriptors.toLocaleString('en')}
file descriptors for each process. Everything happens in a network namespace of the benchmark. Each service has one cluster IP, one
TCP port and two endpoints.

### From the first state to the last rule

${asMarkdown(coldRows(report))}

Medians of several starts, each in a new namespace; in brackets the fastest and the slowest.

${notes(report).join('\n')}

### One change

${asMarkdown(changeRows(report))}

Median / 95th percentile.

* *Seen*: until a client that connects all the time (once a millisecond) gets through to the new service, is answered by the new
  endpoint, or is refused; the proxy was at rest before. *In a row*: the same when each change is made as soon as the one before it was seen.
* *Done*: until the proxy has nothing more to do for the change; then the next one is not in its way. When a service is removed with nftables, that
  is when \`nft\` ends, which the kernel holds until no CPU looks at the removed elements any more; clients are refused long before.
* *Processes*: programs run for one change until it is done.
${versus(report)}
### Run it

As root, with \`ip\` and \`nft\`; the packet rules of the machine itself are not touched.

<!-- not run: takes minutes -->
\`\`\`sh
npm run bench -- portals                                        # all portals, 100 to 30,000 service ports
npm run bench -- portals --portal nftables --sizes 1000,10000
npm run bench -- portals --peer kube-proxy=/path/to/kube-proxy  # beside a kube-proxy in userspace mode
npm run bench -- portals --write-docs                           # writes this section
\`\`\`

The figures are also in \`bench/results/portals.json\`.

Kubernetes 1.25 was the last release whose kube-proxy has the userspace mode. Debian 12 has the source of 1.20.2, and its compiler
builds it:

<!-- not run: changes the machine -->
\`\`\`sh
echo 'deb-src http://deb.debian.org/debian bookworm main' > /etc/apt/sources.list.d/source.list
apt-get update && apt-get install golang-go && apt-get source kubernetes
mkdir -p go/src/k8s.io && ln -s "$PWD"/kubernetes-1.20* go/src/k8s.io/kubernetes
GO111MODULE=off GOPATH="$PWD/go" go build k8s.io/kubernetes/cmd/kube-proxy
\`\`\`

It asks for 64,000 descriptors and ends when it does not get them. Where \`ulimit -Hn\` is lower, lower the number in
\`pkg/proxy/userspace/proxier.go\` (\`setRLimit\`) first.
`;
}

function notes({ results, descriptors }: PortalReport): string[] {
  const text = [
    '* *rules alone* writes the same rules without opening sockets: the difference is what the listeners take.',
    '* *address* listens on service addresses that the host has, here by a local route; *own interface* adds and removes them (`--portal-interface`).',
    '* CPU is that of the process and of the programs that it runs; *idle CPU* is the share of one core while nothing changes.',
  ];
  const short = results.find(({ served, servicePorts }) => served > 0 && served < servicePorts);
  if (short !== undefined) {
    text.push(
      `* ${short.served.toLocaleString('en')} of ${short.servicePorts.toLocaleString('en')} service ports are served where each has a listener of its own: a process may have ` +
        `${descriptors.toLocaleString('en')} descriptors here, and a quarter of them is kept for connections. Clients of the others are refused at once, ` +
        'the log and `/metrics` tell it, and a listener that gets free goes to one of them. `ulimit -n` is what raises it.',
    );
  }
  if (results.some(({ subject }) => subject === PEER_NAME)) {
    text.push(
      `* *${PEER_NAME}* is kube-proxy 1.20.2 with \`--proxy-mode=userspace\` and otherwise its defaults, fed by the API server of our tests (\`test/support/fake-api\`). Its time begins ` +
        'when it has asked for services and endpoints; its rules and processes are counted in its log.',
    );
  }
  return text;
}

function versus(report: PortalReport): string {
  const found = comparison(report, 'nftables', PEER_NAME);
  if (found === undefined) return '';
  const times = (factor: number | undefined): string =>
    factor === undefined ? 'unknown' : Math.round(factor).toLocaleString('en');
  const { added, removed, servicePorts } = found;
  return `
With ${servicePorts.toLocaleString('en')} service ports, ${PEER_NAME} takes so many times as long as the nftables portal:

| | seen | seen in a row | done |
| --- | ---: | ---: | ---: |
| service added | ${times(added.seen)} | ${times(added.seenInRow)} | ${times(added.done)} |
| service removed | ${times(removed.seen)} | ${times(removed.seenInRow)} | ${times(removed.done)} |

It carries out a change first and then checks every rule that there is, one program for each; only then it looks at the next change.
`;
}
