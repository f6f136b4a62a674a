/** The first and the last screen of the demo. */
import { OVEN, SHOP, TILL, type Scene } from './scene.ts';
import { print, printFacts, printHeading } from './screen.ts';

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
