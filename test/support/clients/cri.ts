import { connect } from 'node:http2';
import { createConnection } from 'node:net';

// The request that a kubelet sends to containerd for an image: `PullImage` of the Container Runtime Interface, as gRPC.
// https://github.com/kubernetes/cri-api/blob/master/pkg/apis/runtime/v1/api.proto

/** Lets containerd at `socket` pull `image`, with the credentials of a pull secret or without; throws its message. */
export async function pullAsKubelet(
  socket: string,
  image: string,
  auth?: { username: string; password: string },
): Promise<void> {
  const parts = [field(1, field(1, image))];
  if (auth) parts.push(field(2, Buffer.concat([field(1, auth.username), field(2, auth.password)])));
  const message = Buffer.concat(parts);
  const length = Buffer.alloc(5);
  length.writeUInt32BE(message.length, 1);
  const session = connect('http://localhost', { createConnection: () => createConnection(socket) });
  try {
    const { 'grpc-status': status, 'grpc-message': reason } = await new Promise<Record<string, unknown>>(
      (resolve, reject) => {
        session.on('error', reject);
        const path = '/runtime.v1.ImageService/PullImage';
        const call = session.request({
          ':method': 'POST',
          ':path': path,
          'content-type': 'application/grpc',
          te: 'trailers',
        });
        // An error without a message has its status in the first headers.
        call.on('response', (headers) => 'grpc-status' in headers && resolve(headers));
        call.on('trailers', resolve);
        call.on('error', reject);
        call.resume().end(Buffer.concat([length, message]));
      },
    );
    if (status !== '0') throw new Error(`${String(status)}: ${String(reason)}`);
  } finally {
    session.close();
  }
}

/** A field of Protocol Buffers with a length. */
function field(number: number, content: Buffer | string): Buffer {
  const bytes = Buffer.from(content);
  const length: number[] = [];
  let rest = bytes.length;
  for (; rest > 127; rest >>>= 7) length.push((rest & 127) | 128);
  return Buffer.concat([Buffer.from([(number << 3) | 2, ...length, rest]), bytes]);
}
