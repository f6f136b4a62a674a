/** What the demo prints: columns, check marks, and colours on a terminal. */
import { styleText, type InspectColor } from 'node:util';
import { OVEN, SHOP, TILL, type Scene } from './scene.ts';

/** Follows NO_COLOR and FORCE_COLOR; plain when standard output is not a terminal. */
function style(format: InspectColor | InspectColor[], text: string): string {
  return styleText(format, text, { stream: process.stdout });
}

export function print(line = ''): void {
  process.stdout.write(`${line}\n`);
}

/** Rows of two columns with aligned labels; a row without label continues the one above. */
export function printFacts(facts: readonly (readonly [label: string, text: string])[]): void {
  const width = Math.max(...facts.map(([label]) => label.length)) + 3;
  for (const [label, text] of facts) print(`  ${style('dim', label.padEnd(width))}${text}`);
}

export function printHeading(text: string): void {
  print(style('bold', text));
}

/** Number and title of a step. */
export function printStep(number: number, title: string): void {
  print(`\n${style('cyan', String(number))}  ${style('bold', title)}`);
}

/** What a step saw. */
export function printLine(text: string): void {
  print(`   ${text}`);
}

/** Whether it was as it should be. */
export function printVerdict(ok: boolean, text: string): void {
  print(`   ${ok ? style('green', '✓') : style('red', '✗')} ${text}`);
}

/** `alder 10   birch 10   cedar 10`, in order of the names. */
export function counts(answers: readonly string[]): string {
  return [...tally(answers)]
    .sort(([a], [b]) => a.localeCompare(b))
    .map(([name, count]) => `${name} ${count}`)
    .join('   ');
}

/** How often each text occurs. */
export function tally(texts: readonly string[]): Map<string, number> {
  const result = new Map<string, number>();
  for (const text of texts) result.set(text, (result.get(text) ?? 0) + 1);
  return result;
}

/** What there is, before the tour. */
export function introduce({ endpoints, ports, stateFile, proxy, startMs }: Scene): void {
  const three = [endpoints.alder, endpoints.birch, endpoints.cedar];
  printFacts([
    ...three.map(
      ({ name, address }, index) =>
        [index === 0 ? 'endpoints' : '', `${name}  ${address}`] as const,
    ),
    ['services', `bakery/shop  ${SHOP}  ${ports.http}/TCP and ${ports.echo}/UDP`],
    ['', `bakery/till  ${TILL}  ${ports.http}/TCP, ClientIP affinity`],
    ['state file', stateFile],
    ['proxy', `process ${proxy.pid}, ready after ${startMs.toFixed(0)} ms`],
  ]);
}

/** What can be tried, while the proxy runs on. */
export function invite({ ports, stateFile, adminSocket, statusUrl, proxy }: Scene): void {
  printHeading(`\nThe proxy runs on. Its status page: ${statusUrl}\nTry, in another terminal:\n`);
  const shop = `http://${SHOP}:${ports.http}/`;
  printFacts([
    ['round and round', `for i in 1 2 3 4 5 6; do curl -s ${shop}; done`],
    ['affinity', `for i in 1 2 3; do curl -s http://${TILL}:${ports.http}/; done`],
    ['the new service', `curl http://${OVEN}:${ports.http}/`],
    ['UDP', `node -e "${udpQuestion(SHOP, ports.echo)}"`],
    ['1 GiB', `curl -s ${shop}bytes/1073741824 | sha256sum`],
    ['live table', `npm start -s -- top --socket ${adminSocket}`],
    ['metrics', `curl -s ${proxy.metricsUrl}`],
    ['health', `curl -s ${proxy.healthUrl}`],
    ['edit the state', `\${EDITOR:-vi} ${stateFile}`],
  ]);
  print('\nCtrl-C ends it. The proxy’s log from here on:\n');
}

/** A script that sends a datagram and prints the answer. Without a double quote, for every shell. */
function udpQuestion(address: string, port: number): string {
  return (
    `s=require('dgram').createSocket('udp4');s.send('hello',${port},'${address}');` +
    `s.on('message',(m)=>{console.log(String(m));s.close()})`
  );
}
