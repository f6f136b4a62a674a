/** What the agent of a machine does for `Traffic`: clients and servers with ways of their own. */
import { firstFlight, serveFirstFlight, serveTls, askTls } from './traffic-bytes.ts';
import { closeClients, connectMany, openFlows, sayFlow } from './traffic-clients.ts';
import { endedByClients, greet, respond, stopServing } from './traffic-servers.ts';

/** An address and a port. */
export interface Spot {
  readonly address: string;
  readonly port: number;
}

export type TrafficRequest =
  /** Answers TCP and UDP with a name, until stopped. */
  | ({ do: 'respond'; name: string } & Spot)
  /** Greets TCP clients. Ends a connection when its client does, or never. */
  | ({ do: 'greet'; ends: boolean } & Spot)
  /** How many connections the clients have ended. */
  | { do: 'ended' }
  /** Ends every server and their connections. */
  | { do: 'stop' }
  /** Connects again and again, and waits for each greeting. */
  | ({ do: 'connect'; count: number; waitMs: number; after: 'stay' | 'half-close' } & Spot)
  /** Closes the connections of `connect` and the sockets of `flows`. */
  | { do: 'close' }
  /** Opens UDP sockets that stay, and sends once on each. */
  | ({ do: 'flows'; count: number } & Spot)
  /** Sends once on one of them. */
  | { do: 'say'; index: number; waitMs: number }
  /** Sends so many bytes as soon as a client has come, and reads until it ends. */
  | ({ do: 'serve-first-flight'; bytes: number } & Spot)
  /** The same as a client. */
  | ({ do: 'first-flight'; bytes: number } & Spot)
  | ({ do: 'serve-tls'; key: string; cert: string } & Spot)
  | ({ do: 'ask-tls'; ca: string; text: string } & Spot);

export async function traffic(request: TrafficRequest): Promise<unknown> {
  switch (request.do) {
    case 'respond':
      return respond(request, request.name);
    case 'greet':
      return greet(request, request.ends);
    case 'ended':
      return endedByClients();
    case 'stop':
      return stopServing();
    case 'connect':
      return connectMany(request, request);
    case 'close':
      return closeClients();
    case 'flows':
      return openFlows(request, request.count);
    case 'say':
      return sayFlow(request.index, request.waitMs);
    case 'serve-first-flight':
      return serveFirstFlight(request, request.bytes);
    case 'first-flight':
      return firstFlight(request, request.bytes);
    case 'serve-tls':
      return serveTls(request, request);
    case 'ask-tls':
      return askTls(request, request);
    default:
      return request satisfies never;
  }
}
