/**
 * The requests that Node's TCP handles take, which only `process.binding` gives: deprecated in the
 * documentation, there in every Node so far, not there under `--permission`. See `handle.ts`.
 */
import type { TcpHandle } from './handle.ts';

export interface ConnectRequest {
  oncomplete: (status: number) => void;
}

export interface ShutdownRequest {
  oncomplete: (status: number) => void;
}

export interface WriteRequest {
  oncomplete: (status: number) => void;
  /** Set only while the kernel has not taken the whole chunk. */
  written: ((status: number) => void) | undefined;
  /** Kept until the kernel has taken it. */
  buffer: Buffer | undefined;
}

/** Statuses are 0 or errors of libuv, which are negative. */
export interface StreamCalls {
  readonly endOfFile: number;
  readonly notConnected: number;
  newHandle(): TcpHandle;
  newConnectRequest(): ConnectRequest;
  newShutdownRequest(): ShutdownRequest;
  /**
   * A request for one write. Nearly every write is over when the call returns, and its request is good
   * for the next one, unless it is kept.
   */
  writeRequest(): WriteRequest;
  keepWriteRequest(): void;
  /** Whether the last write is not over yet. */
  lastWriteWaits(): boolean;
  /** Bytes of the read that `onread` is being told of, or its status. */
  readLength(): number;
}

interface TcpBinding {
  readonly TCP: new (type: number) => TcpHandle;
  readonly TCPConnectWrap: new () => ConnectRequest;
  readonly constants: { readonly SOCKET: number };
}

interface StreamBinding {
  readonly WriteWrap: new () => WriteRequest;
  readonly ShutdownWrap: new () => ShutdownRequest;
  readonly kReadBytesOrError: number;
  readonly kLastWriteWasAsync: number;
  readonly streamBaseState: Int32Array;
}

interface ErrorBinding {
  readonly UV_EOF: number;
  readonly UV_ENOTCONN: number;
}

let known: { readonly calls: StreamCalls | undefined } | undefined;

/** Undefined where this Node does not give them. */
export function streamCalls(): StreamCalls | undefined {
  known ??= { calls: find() };
  return known.calls;
}

function find(): StreamCalls | undefined {
  const { binding } = process as unknown as { readonly binding?: (name: string) => unknown };
  if (binding === undefined) return undefined;
  try {
    const [tcp, stream, uv] = ['tcp_wrap', 'stream_wrap', 'uv'].map((name) => binding(name));
    return isTcp(tcp) && isStream(stream) && isUv(uv) ? makeCalls(tcp, stream, uv) : undefined;
  } catch {
    // ERR_ACCESS_DENIED or ERR_INVALID_MODULE: the documented way does without.
    return undefined;
  }
}

function isTcp(found: unknown): found is TcpBinding {
  const { TCP, TCPConnectWrap, constants } = found as Partial<TcpBinding>;
  return areFunctions(TCP, TCPConnectWrap) && typeof constants?.SOCKET === 'number';
}

function isStream(found: unknown): found is StreamBinding {
  const all = found as Partial<StreamBinding>;
  return (
    areFunctions(all.WriteWrap, all.ShutdownWrap) &&
    typeof all.kReadBytesOrError === 'number' &&
    typeof all.kLastWriteWasAsync === 'number' &&
    all.streamBaseState instanceof Int32Array
  );
}

function isUv(found: unknown): found is ErrorBinding {
  const { UV_EOF, UV_ENOTCONN } = found as Partial<ErrorBinding>;
  return typeof UV_EOF === 'number' && typeof UV_ENOTCONN === 'number';
}

function areFunctions(...all: readonly unknown[]): boolean {
  return all.every((each) => typeof each === 'function');
}

function makeCalls(tcp: TcpBinding, stream: StreamBinding, uv: ErrorBinding): StreamCalls {
  const { TCP, TCPConnectWrap, constants } = tcp;
  const { WriteWrap, ShutdownWrap, kReadBytesOrError, kLastWriteWasAsync } = stream;
  const state = stream.streamBaseState;
  const newWriteRequest = (): WriteRequest => {
    const request = new WriteWrap();
    request.oncomplete = onWritten;
    return request;
  };
  let spare = newWriteRequest();
  return {
    endOfFile: uv.UV_EOF,
    notConnected: uv.UV_ENOTCONN,
    newHandle: () => new TCP(constants.SOCKET),
    newConnectRequest: () => new TCPConnectWrap(),
    newShutdownRequest: () => new ShutdownWrap(),
    writeRequest: () => spare,
    keepWriteRequest() {
      spare = newWriteRequest();
    },
    lastWriteWaits: () => state[kLastWriteWasAsync] !== 0,
    readLength: () => state[kReadBytesOrError] ?? 0,
  };
}

function onWritten(this: WriteRequest, status: number): void {
  const { written } = this;
  this.buffer = undefined;
  this.written = undefined;
  written?.(status);
}
