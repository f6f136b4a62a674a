import { createSocket } from 'node:dgram';
import { once } from 'node:events';

/** A UDP client with a port of its own, so it is one session of a proxy. */
export interface UdpClient {
  /** Sends and resolves with the first answer. Sends again each second in between, since UDP may lose either; rejects after 20 s. */
  ask(message: string): Promise<string>;
  close(): void;
}

/** Opens a client that talks to one address and port. */
export async function openUdpClient(address: string, port: number): Promise<UdpClient> {
  const socket = createSocket('udp4');
  socket.connect(port, address);
  await once(socket, 'connect');
  return {
    async ask(message) {
      const send = (): void => socket.send(message);
      const again = setInterval(send, 1000);
      try {
        const answer = once(socket, 'message', { signal: AbortSignal.timeout(20_000) });
        send();
        const [text] = (await answer) as [Buffer];
        return text.toString();
      } finally {
        clearInterval(again);
      }
    },
    close: () => socket.close(),
  };
}
