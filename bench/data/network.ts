/**
 * The network that data is measured in:
 *
 *     client ---- node of direct ------ server
 *        |\------ node of HAProxy -------/|
 *         \------ node of ... -----------/
 *
 * Client and server are namespaces, and every peer has a namespace of its own between them, with a
 * wire to each. So packets of all peers go the same way, rules and connection tracking of one peer
 * cost no other one anything, and what is left of a peer goes with its namespace. Loopback would
 * be shorter, but its 64 KiB frames flatter proxies that copy, and nothing is forwarded on it.
 */
import { Namespaces } from '../support/namespaces.ts';

/** Where the servers are. */
export const SERVER_ADDRESS = '10.202.0.1';

/** Further addresses of the client, and what routes a user's programs to one of them. */
const CLIENTS = '10.203.0';
const FIRST_USER = 20_000;
const TABLE = 1000;

/** The namespace of one peer. */
export interface PeerNode {
  /** What clients use, unless there is no proxy. It is routed to this node, and on no interface of it. */
  readonly service: string;
  /** Its own address towards the client. */
  readonly address: string;
  /** The command line that runs a program in it. `ip` becomes the program, so its id is the program's. */
  command(...words: readonly string[]): string[];
}

export class DataNetwork {
  readonly #namespaces = new Namespaces('kpngbench');
  #nodes = 0;
  #clients = 0;
  readonly #congestion: string;

  /**
   * Makes client and server. `congestion`: the congestion control of all that is in it.
   * Throws when either is not allowed.
   */
  constructor(congestion: string) {
    this.#congestion = congestion;
    this.#add('client');
    this.#add('server');
    this.#namespaces.ip('server', [`address add ${SERVER_ADDRESS}/32 dev lo`]);
  }

  /** Puts another node between client and server. */
  addNode(): PeerNode {
    const number = (this.#nodes += 1);
    const name = `node${number}`;
    const [towardsClient, towardsServer] = [`10.200.${number}`, `10.201.${number}`];
    const service = `10.96.0.${number}`;
    this.#add(name);
    this.#namespaces.ip(name, [
      `link add client type veth peer name ${name} netns ${this.#namespaces.name('client')}`,
      `link add server type veth peer name ${name} netns ${this.#namespaces.name('server')}`,
      'link set client up',
      'link set server up',
      `address add ${towardsClient}.1/30 dev client`,
      `address add ${towardsServer}.1/30 dev server`,
    ]);
    this.#namespaces.ip('client', [
      `link set ${name} up`,
      `address add ${towardsClient}.2/30 dev ${name}`,
      `route add ${service}/32 via ${towardsClient}.1`,
    ]);
    this.#namespaces.ip('server', [
      `link set ${name} up`,
      `address add ${towardsServer}.2/30 dev ${name}`,
      `route add ${towardsClient}.0/30 via ${towardsServer}.1`,
    ]);
    this.#namespaces.ip(name, [`route add default via ${towardsServer}.2 dev server`]);
    this.#namespaces.run(name, ['sysctl', '-q', '-w', 'net.ipv4.ip_forward=1']);
    this.#namespaces.ip(name, [`route add ${CLIENTS}.0/24 via ${towardsClient}.2 dev client`]);
    this.#namespaces.ip(
      'client',
      this.#numbers().map((each) => routeOf(each, service, `${towardsClient}.1`)),
    );
    return {
      service,
      address: `${towardsClient}.1`,
      command: (...words) => this.#namespaces.command(name, words),
    };
  }

  /** Sends what clients send to the server itself through this node. */
  routeServerThrough(node: PeerNode): void {
    this.#namespaces.ip('client', [`route replace ${SERVER_ADDRESS}/32 via ${node.address}`]);
  }

  /**
   * Gives the client further addresses, for programs of as many users: whom a program runs as decides from
   * which address it connects to services. Nodes are added later.
   */
  addClients(count: number): void {
    this.#clients = count;
    this.#namespaces.ip(
      'client',
      this.#numbers().flatMap((each) => [
        `address add ${CLIENTS}.${each}/32 dev lo`,
        `rule add uidrange ${FIRST_USER + each}-${FIRST_USER + each} lookup ${TABLE + each}`,
      ]),
    );
  }

  /** The further addresses. */
  get clientAddresses(): readonly string[] {
    return this.#numbers().map((each) => `${CLIENTS}.${each}`);
  }

  /** The same as `client`, from one of the further addresses: 1 for the first. */
  clientAs(number: number, ...words: readonly string[]): string[] {
    const user = String(FIRST_USER + number);
    return this.client('setpriv', `--reuid=${user}`, '--clear-groups', ...words);
  }

  #numbers(): number[] {
    return Array.from({ length: this.#clients }, (_, index) => index + 1);
  }

  /** Command lines for the two ends. */
  client(...words: readonly string[]): string[] {
    return this.#namespaces.command('client', words);
  }

  server(...words: readonly string[]): string[] {
    return this.#namespaces.command('server', words);
  }

  /** Ends what runs in it, and removes it. Idempotent; done at the latest when this process ends. */
  remove(): void {
    this.#namespaces.remove();
  }

  #add(word: string): void {
    this.#namespaces.add(word);
    this.#namespaces.run(word, [
      'sysctl',
      '-q',
      '-w',
      `net.ipv4.tcp_congestion_control=${this.#congestion}`,
    ]);
  }
}

function routeOf(client: number, service: string, via: string): string {
  return `route add ${service}/32 via ${via} src ${CLIENTS}.${client} table ${TABLE + client}`;
}
