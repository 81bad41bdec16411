package verbs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"unsafe"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma"
)

// layouts lists our types that C reads or writes directly, with C's names for them and for their
// fields, in order.
var layouts = []struct {
	c      string
	of     any
	fields string
}{
	{"struct ud_send", rdma.SendRequest{}, "id op flags sges immediate remote_addr rkey remote_qpn remote_qkey handle compare swap"},
	{"struct ud_receive", rdma.ReceiveRequest{}, "id sges unused"},
	{"struct ibv_sge", rdma.SGE{}, "addr length lkey"},
	{"struct ibv_wc", rdma.WorkCompletion{}, "wr_id status opcode vendor_err byte_len imm_data qp_num src_qp wc_flags pkey_index slid sl dlid_path_bits"},
}

// numbers lists our constants that have the same value in libibverbs.
var numbers = map[string]uint64{
	"IBV_QPT_RC": uint64(rdma.RC), "IBV_QPT_UC": uint64(rdma.UC), "IBV_QPT_UD": uint64(rdma.UD),

	"IBV_WR_RDMA_WRITE": uint64(rdma.Write), "IBV_WR_RDMA_WRITE_WITH_IMM": uint64(rdma.WriteImmediate), "IBV_WR_SEND": uint64(rdma.Send),
	"IBV_WR_SEND_WITH_IMM": uint64(rdma.SendImmediate), "IBV_WR_RDMA_READ": uint64(rdma.Read), "IBV_WR_ATOMIC_CMP_AND_SWP": uint64(rdma.CompareSwap),
	"IBV_WR_ATOMIC_FETCH_AND_ADD": uint64(rdma.FetchAdd), "IBV_WR_LOCAL_INV": uint64(rdma.LocalInvalidate), "IBV_WR_SEND_WITH_INV": uint64(rdma.SendInvalidate),

	"IBV_SEND_FENCE": uint64(rdma.Fence), "IBV_SEND_SIGNALED": uint64(rdma.Signaled), "IBV_SEND_SOLICITED": uint64(rdma.Solicited), "IBV_SEND_INLINE": uint64(rdma.Inline),

	"IBV_ACCESS_LOCAL_WRITE": uint64(rdma.LocalWrite), "IBV_ACCESS_REMOTE_WRITE": uint64(rdma.RemoteWrite), "IBV_ACCESS_REMOTE_READ": uint64(rdma.RemoteRead),
	"IBV_ACCESS_REMOTE_ATOMIC": uint64(rdma.RemoteAtomic), "IBV_ACCESS_MW_BIND": uint64(rdma.BindWindows),

	"IBV_WC_SEND": uint64(rdma.SendDone), "IBV_WC_RDMA_WRITE": uint64(rdma.WriteDone), "IBV_WC_RDMA_READ": uint64(rdma.ReadDone),
	"IBV_WC_COMP_SWAP": uint64(rdma.CompareSwapDone), "IBV_WC_FETCH_ADD": uint64(rdma.FetchAddDone), "IBV_WC_BIND_MW": uint64(rdma.BindDone),
	"IBV_WC_LOCAL_INV": uint64(rdma.LocalInvalidateDone), "IBV_WC_RECV": uint64(rdma.Received), "IBV_WC_RECV_RDMA_WITH_IMM": uint64(rdma.ReceivedWrite),

	"IBV_WC_GRH": uint64(rdma.HasGRH), "IBV_WC_WITH_IMM": uint64(rdma.HasImmediate), "IBV_WC_WITH_INV": uint64(rdma.HasInvalidated),

	"IBV_QPS_RESET": uint64(rdma.Reset), "IBV_QPS_INIT": uint64(rdma.Init), "IBV_QPS_RTR": uint64(rdma.ReadyToReceive), "IBV_QPS_RTS": uint64(rdma.ReadyToSend),
	"IBV_QPS_SQD": uint64(rdma.SendDrained), "IBV_QPS_SQE": uint64(rdma.SendError), "IBV_QPS_ERR": uint64(rdma.Error),

	"IBV_QP_STATE": uint64(rdma.MaskState), "IBV_QP_CUR_STATE": uint64(rdma.MaskCurrentState), "IBV_QP_ACCESS_FLAGS": uint64(rdma.MaskAccess),
	"IBV_QP_PKEY_INDEX": uint64(rdma.MaskPKeyIndex), "IBV_QP_PORT": uint64(rdma.MaskPort), "IBV_QP_QKEY": uint64(rdma.MaskQKey), "IBV_QP_AV": uint64(rdma.MaskAddress),
	"IBV_QP_PATH_MTU": uint64(rdma.MaskPathMTU), "IBV_QP_TIMEOUT": uint64(rdma.MaskTimeout), "IBV_QP_RETRY_CNT": uint64(rdma.MaskRetries),
	"IBV_QP_RNR_RETRY": uint64(rdma.MaskRNRRetries), "IBV_QP_RQ_PSN": uint64(rdma.MaskReceivePSN), "IBV_QP_MAX_QP_RD_ATOMIC": uint64(rdma.MaskMaxReads),
	"IBV_QP_MIN_RNR_TIMER": uint64(rdma.MaskMinRNRTimer), "IBV_QP_SQ_PSN": uint64(rdma.MaskSendPSN), "IBV_QP_MAX_DEST_RD_ATOMIC": uint64(rdma.MaskMaxRemoteReads),
	"IBV_QP_DEST_QPN": uint64(rdma.MaskRemoteQPN),

	"IBV_MTU_256": uint64(rdma.MTU256), "IBV_MTU_512": uint64(rdma.MTU512), "IBV_MTU_1024": uint64(rdma.MTU1024), "IBV_MTU_2048": uint64(rdma.MTU2048),
	"IBV_MTU_4096": uint64(rdma.MTU4096),

	"IBV_GID_TYPE_IB": uint64(rdma.InfiniBand), "IBV_GID_TYPE_ROCE_V1": uint64(rdma.RoCE1), "IBV_GID_TYPE_ROCE_V2": uint64(rdma.RoCE2),
	"IBV_LINK_LAYER_INFINIBAND": uint64(rdma.LinkInfiniBand), "IBV_LINK_LAYER_ETHERNET": uint64(rdma.LinkEthernet),

	"IBV_EVENT_CQ_ERR": uint64(rdma.CompletionQueueError), "IBV_EVENT_QP_FATAL": uint64(rdma.QueuePairFatal), "IBV_EVENT_QP_REQ_ERR": uint64(rdma.QueuePairRequest),
	"IBV_EVENT_QP_ACCESS_ERR": uint64(rdma.QueuePairAccess), "IBV_EVENT_COMM_EST": uint64(rdma.Established), "IBV_EVENT_SQ_DRAINED": uint64(rdma.SendQueueDrained),
	"IBV_EVENT_DEVICE_FATAL": uint64(rdma.DeviceFatal), "IBV_EVENT_PORT_ACTIVE": uint64(rdma.PortActive), "IBV_EVENT_PORT_ERR": uint64(rdma.PortError),
	"IBV_EVENT_LID_CHANGE": uint64(rdma.LIDChange), "IBV_EVENT_PKEY_CHANGE": uint64(rdma.PKeyChange), "IBV_EVENT_SRQ_ERR": uint64(rdma.SharedQueueError),
	"IBV_EVENT_SRQ_LIMIT_REACHED": uint64(rdma.SharedQueueLimit), "IBV_EVENT_QP_LAST_WQE_REACHED": uint64(rdma.LastReceive), "IBV_EVENT_GID_CHANGE": uint64(rdma.GIDChange),

	"sizeof(struct ibv_grh)": rdma.GRHBytes,
}

// TestHeaders: our types and constants agree with the installed headers.
func TestHeaders(t *testing.T) {
	var asks strings.Builder
	want := map[string]uint64{}
	ask := func(expression string, n uint64) {
		want[expression] = n
		fmt.Fprintf(&asks, "\tprintf(\"%s=%%llu\\n\", (unsigned long long)(%s));\n", expression, expression)
	}
	for _, l := range layouts {
		of := reflect.TypeOf(l.of)
		ask("sizeof("+l.c+")", uint64(of.Size()))
		for i, name := range strings.Fields(l.fields) {
			ask("offsetof("+l.c+", "+name+")", uint64(of.Field(i).Offset))
			ask("sizeof((("+l.c+" *)0)->"+name+")", uint64(of.Field(i).Type.Size()))
		}
		if n := len(strings.Fields(l.fields)); n != of.NumField() {
			t.Errorf("%s has %d fields here, and ours %d", l.c, n, of.NumField())
		}
	}
	for name, n := range numbers {
		ask(name, n)
	}
	for s := rdma.Success; ; s++ {
		name := s.String()
		if !strings.HasPrefix(name, "IBV_WC_") {
			break
		}
		ask(name, uint64(s))
	}
	for _, line := range strings.Split(strings.TrimSpace(runC(t, asks.String())), "\n") {
		i := strings.LastIndex(line, "=")
		if got := line[i+1:]; got != fmt.Sprint(want[line[:i]]) {
			t.Errorf("%s is %s in the headers, and %d here", line[:i], got, want[line[:i]])
		}
		delete(want, line[:i])
	}
	if len(want) != 0 {
		t.Errorf("the headers said nothing of %v", want)
	}
}

// TestAlignments: addresses that C casts to its own types are aligned.
func TestAlignments(t *testing.T) {
	for _, n := range []uintptr{unsafe.Alignof(rdma.SendRequest{}), unsafe.Alignof(rdma.ReceiveRequest{}), unsafe.Alignof(rdma.SGE{}), unsafe.Alignof(rdma.WorkCompletion{})} {
		if n != 8 {
			t.Errorf("an alignment of %d", n)
		}
	}
}

// runC compiles a C program of these statements with the headers, and returns its output.
func runC(t *testing.T, statements string) string {
	t.Helper()
	dir := t.TempDir()
	source, program := filepath.Join(dir, "ask.c"), filepath.Join(dir, "ask")
	text := "#include <stddef.h>\n#include <stdio.h>\n#include \"shim.h\"\nint main(void)\n{\n" + statements + "\treturn 0;\n}\n"
	testenv.Must(t, os.WriteFile(source, []byte(text), 0o600))
	here, err := os.Getwd()
	testenv.Must(t, err)
	if out, err := exec.Command(testenv.Tool(t, "gcc"), "-I", here, "-o", program, source).CombinedOutput(); err != nil {
		t.Fatalf("compile with the headers of libibverbs: %v\n%s", err, out)
	}
	out, err := exec.Command(program).Output()
	testenv.Must(t, err)
	return string(out)
}
