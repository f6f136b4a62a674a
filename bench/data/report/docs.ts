import { describeMachine } from '../../report/machine.ts';
import { asMarkdown } from '../../report/table.ts';
import { DATAGRAM_BYTES } from '../loads/iperf3.ts';
import type { DataReport } from '../result.ts';
import { renderPlots } from './plots.ts';
import { reasonLines } from './reasons.ts';
import {
  fixedRateRows,
  latencyRows,
  machineRows,
  memoryRows,
  missingLines,
  ownRows,
  profileRows,
  rateRows,
  targetRows,
} from './tables.ts';

/** The section of docs/benchmarks.md. */
export function renderSection(report: DataReport): string {
  const { date, machine, congestionControl, rounds, seconds } = report;
  const plots = renderPlots(report);
  const [cpu, ...latency] = plots.map(({ alt, file }) => `![${alt}](${file})`);
  return `## Traffic, beside other proxies

Measured on ${date} on: ${describeMachine(machine)}; TCP congestion control \`${congestionControl}\`. Medians of
${rounds === 1 ? 'one round' : `${rounds} rounds`} of ${seconds} s; in brackets the lowest and the highest. The peers take turns in every round. Before it began, the
machine was ${(100 * report.busyBefore).toFixed(0)} % busy with something else; the whole run took ${(report.took / 60).toFixed(0)} minutes.

### CPU of the proxy

${cpu ?? ''}

User and system time of the proxy's processes for one unit of work. What the kernel does for it in interrupts is not in it.

${asMarkdown(ownRows(report), 2)}

### CPU of the whole machine

What all cores did more than with *direct* (in brackets: all of it), for one unit of work: the proxy, the kernel's way to it
and from it, and what client and server need more or less because of it. Anything else on the machine is in it too.

${asMarkdown(machineRows(report), 2)}

### Throughput

${asMarkdown(rateRows(report), 2)}

${fixedRate(report, latency)}${fullSpeed(report)}${idleMemory(report)}### Targets

${asMarkdown(targetRows(report), 4)}

Ratios inside this run. CPU is that of the proxy's processes; the last two columns say where it goes, in the units of the first
table: in the program itself, and in the kernel for it. Ratios closer than 0.1 are equal on a shared machine.

${reasons(report)}${profiles(report)}${bulkOtherwise(report)}${missing(report)}### How it is measured

* Client, server and each proxy are in network namespaces of their own, joined by virtual wires with an MTU of 1,500. *direct* is forwarded
  by a namespace just like that of a proxy, so everybody's packets go the same way; *kernel DNAT* is that with one nftables rule.
* *ours* is this project, started from its command line with a state file, nftables rules and one of its engines.
  *kube-proxy* is the real program in its userspace mode, with the iptables rules that it writes, fed by the API server of our tests.
  HAProxy (one thread; it has no UDP) and nginx (one worker) are led to by one nftables rule, since they write none themselves.
* Loads: bulk is iperf3; requests and connections are wrk with one thread against nginx, 12-byte answers; a fixed rate of
  requests comes from a client of this project, which spreads them evenly and counts waiting for a connection, that of datagrams from sockperf; UDP with one client is sockperf, with more an echo of this project, 64 bytes each; one way
  is iperf3 with ${DATAGRAM_BYTES} bytes, divided by the datagrams that arrived.
* Network namespaces may always have the congestion control \`reno\`. As with \`cubic\`, which Linux has by default, nothing is paced by timers.
* Everybody shares the cores of one machine. Absolute figures drift by a factor of two; the ratios inside one run are what counts.

### Run it

As root; the machine's own packet rules are not touched. Debian packages: \`wrk iperf3 sockperf haproxy nginx
libnginx-mod-stream\`, and \`linux-perf\` for profiles. A kube-proxy with the userspace mode can be built from Debian 12's source package
\`kubernetes\` (1.20) with its \`golang-go\`: \`GO111MODULE=off go build k8s.io/kubernetes/cmd/kube-proxy\`, the source linked into \`$GOPATH\`.

<!-- not run: takes minutes -->
\`\`\`sh
npm run bench -- data --peer kube-proxy=PATH       # all, about 15 minutes
npm run bench -- data --quick                      # one short round, about 3 minutes
npm run bench -- data --only bulk,udp-64 --peers direct,node,linux
npm run bench -- data --peer kube-proxy=PATH --write-docs
\`\`\`
`;
}

function fixedRate(report: DataReport, plots: readonly string[]): string {
  const rows = fixedRateRows(report);
  if (rows.length === 1) return '';
  return `### Latency at a fixed rate

All peers are asked for half of what the slowest one can do. Microseconds.

${plots.join('\n\n')}

${asMarkdown(rows, 2)}

`;
}

function fullSpeed(report: DataReport): string {
  const rows = latencyRows(report);
  if (rows.length === 1) return '';
  return `### Latency at full speed

Each client waits for its answer before it asks again (p50 / p99 / p99.9).

${asMarkdown(rows, 2)}

`;
}

function idleMemory(report: DataReport): string {
  const rows = memoryRows(report);
  if (rows.length === 1) return '';
  return `### Memory of idle connections

${asMarkdown(rows, 1)}

Growth of the anonymous memory of the proxy's processes with ${report.idleConnections.toLocaleString('en')} connections that have carried one
request each; memory of the kernel is not in it.

`;
}

function reasons(report: DataReport): string {
  const lines = reasonLines(report);
  if (lines.length === 0) return '';
  return `Why targets are missed:\n\n${lines.map((line) => `* ${line}`).join('\n')}\n\n`;
}

function profiles(report: DataReport): string {
  const rows = profileRows(report);
  if (rows.length === 1) return '';
  return `Where the CPU goes where a target is missed, by samples of perf in a run of its own:

${asMarkdown(rows, 3)}

`;
}

function bulkOtherwise({ otherwise }: DataReport): string {
  if (otherwise === undefined) return '';
  const name = `\`${otherwise.congestionControl}\``;
  return `### Bulk with ${name}

The machine's own congestion control is ${name}. How TCP decides when to send what is a large part of what bulk data cost, and differs
between them: some pace what they send with timers of the kernel, whose work the sender pays for.

${asMarkdown(ownRows(otherwise), 2)}

${asMarkdown(rateRows(otherwise), 2)}

${asMarkdown(targetRows(otherwise), 4)}

${reasons(otherwise)}`;
}

function missing(report: DataReport): string {
  const lines = missingLines(report);
  if (lines.length === 0) return '';
  return `### Missing\n\n${lines.map((line) => `* ${line.replace('missing: ', '')}`).join('\n')}\n\n`;
}
