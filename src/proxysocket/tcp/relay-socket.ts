/** What is used of a connection's socket. A `net.Socket` has all of it. */
export interface RelaySocket {
  readonly connecting: boolean;
  readonly destroyed: boolean;
  readonly writable: boolean;
  readonly writableEnded: boolean;
  readonly writableFinished: boolean;
  /** Bytes that the kernel has not taken yet, of chunks that it has not taken whole. */
  readonly writableLength: number;
  /** The same, where parts of a chunk that were taken are told. */
  readonly queuedBytes?: number;
  readonly localAddress?: string | undefined;
  readonly localPort?: number | undefined;
  /** `done` is called when the kernel has this chunk and those before it, or with an error. */
  write(chunk: Buffer, done?: (error?: Error | null) => void): unknown;
  end(): unknown;
  destroy(): unknown;
  resetAndDestroy(): unknown;
  /** Begins to read, or reads on. */
  read(size: 0): unknown;
  pause(): unknown;
  resume(): unknown;
  setKeepAlive(enable: boolean, initialDelayMs: number): unknown;
  on(event: 'end' | 'close', listener: () => void): unknown;
  on(event: 'error', listener: (error: Error) => void): unknown;
  on(event: 'data', listener: (chunk: Buffer) => void): unknown;
  once(event: 'connect' | 'finish', listener: () => void): unknown;
  off(event: 'error', listener: (error: Error) => void): unknown;
}
