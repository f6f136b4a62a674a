import { describeMachine } from './machine.ts';
import type { Report } from './report.ts';
import { asMarkdown, loadRows, memoryRows } from './table.ts';

/** docs/benchmarks.md, from one run. */
export function renderDocs(report: Report): string {
  return `# Benchmarks

This page is written by the benchmark itself: \`npm run bench -- --write-docs\`. Do not edit it.

Measured on ${report.date} on: ${describeMachine(report.machine)}.

## Traffic

${asMarkdown(loadRows(report))}

Medians of ${report.rounds} rounds of ${report.seconds} s; in brackets the lowest and the highest round.

* *direct* has nothing between client and server. *pipe()* is the proxy that one writes first in Node
  (\`bench/peers/pipe-proxy.ts\`): no balancing, no limits, no idle time. *kpng-userspace* is this project,
  run as users run it, with a state file and one endpoint.
* CPU is user and system time of the proxy's own process, for each unit of work.
* Latency is from the request until its answer is complete; for connections, from connecting until
  the connection is closed.
* Small requests are 128 bytes and their answers 256; datagrams are 64 bytes each way.

## Idle memory

${asMarkdown(memoryRows(report), 1)}

*Resident* is everything of the process that is in memory; a part of it is the file of the Node program, which
other Node processes share. *Its own* is the anonymous part: heap, stacks and buffers.

## How to read it

* Client, proxy and server share one machine and its cores, all on loopback. Such figures drift by a factor
  of two from machine to machine and from hour to hour; the ratios inside one run are what counts.
  Treat ratios closer than 0.1 as equal.
* The rounds of the peers are interleaved, and their order changes from round to round.
* Loopback flatters copying: the data stays in the cache and the segments are large.

## Run it

<!-- not run: takes minutes -->
\`\`\`sh
npm run bench                          # the table, in less than a minute
npm run bench -- --rounds 7 --seconds 3
npm run bench -- --only bulk           # loads whose name holds the word
npm run bench -- --json result.json    # all figures, for comparing
npm run bench -- --write-docs          # writes this page
npm run bench -- data                  # beside other proxies, in namespaces, as root
npm run bench -- rest                  # memory and CPU of what lies idle
npm run bench -- integrity             # 1 GiB both ways, datagrams, an endpoint killed under load: checksums
\`\`\`
`;
}
