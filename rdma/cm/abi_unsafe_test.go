package cm

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
)

// layouts lists our types by C's names for them and for their fields, in order; "-" stands for a
// field without a name in C, or with one that does not matter.
var layouts = []struct {
	c      string
	of     any
	fields string
}{
	{"struct rdma_ucm_cmd_hdr", header{}, "cmd in out"},
	{"struct rdma_ucm_create_id_resp", handle{}, "id"},
	{"struct rdma_ucm_create_id", create{}, "uid response ps qp_type reserved"},
	{"struct rdma_ucm_destroy_id", destroy{}, "response id reserved"},
	{"struct rdma_ucm_bind", bind{}, "id addr_size reserved addr"},
	{"struct rdma_ucm_resolve_addr", resolveAddress{}, "id timeout_ms src_size dst_size reserved src_addr dst_addr"},
	{"struct rdma_ucm_resolve_route", resolveRoute{}, "id timeout_ms"},
	{"struct rdma_ucm_query", query{}, "response id option"},
	{"struct rdma_ucm_query_addr_resp", queried{}, "node_guid port_num reserved - src_addr dst_addr -"},
	{"struct rdma_ucm_conn_param", parameters{}, "qp_num qkey private_data private_data_len srq responder_resources initiator_depth " +
		"flow_control retry_count rnr_retry_count valid"},
	{"struct rdma_ucm_connect", connect{}, "conn_param id reserved ece"},
	{"struct rdma_ucm_listen", listen{}, "id backlog"},
	{"struct rdma_ucm_accept", accept{}, "uid conn_param id reserved ece"},
	{"struct rdma_ucm_reject", reject{}, "id private_data_len reason reserved private_data"},
	{"struct rdma_ucm_disconnect", disconnect{}, "id"},
	{"struct rdma_ucm_init_qp_attr", attributes{}, "response id qp_state"},
	{"struct rdma_ucm_set_option", setOption{}, "optval id level optname optlen"},
	{"struct rdma_ucm_get_event", getEvent{}, "response"},
	{"struct rdma_ucm_event_resp", reported{}, "uid id event status param.conn - reserved ece"},
	{"struct ib_uverbs_ah_attr", path{}, "grh.dgid grh.flow_label grh.sgid_index grh.hop_limit grh.traffic_class grh.reserved dlid sl " +
		"src_path_bits static_rate is_global port_num reserved"},
	{"struct ib_uverbs_qp_attr", state{}, "qp_attr_mask qp_state cur_qp_state path_mtu path_mig_state qkey rq_psn sq_psn dest_qp_num " +
		"qp_access_flags ah_attr alt_ah_attr - pkey_index alt_pkey_index en_sqd_async_notify sq_draining max_rd_atomic max_dest_rd_atomic " +
		"min_rnr_timer port_num timeout retry_cnt rnr_retry alt_port_num alt_timeout reserved"},
	{"struct sockaddr_in", socket{}, "sin_family sin_port -"},
}

// numbers lists our constants that are the kernel's.
var numbers = map[string]uint64{
	"RDMA_USER_CM_ABI_VERSION": abiVersion, "RDMA_MAX_PRIVATE_DATA": most + 1, "RDMA_USER_CM_CMD_CREATE_ID": cmdCreate,
	"RDMA_USER_CM_CMD_DESTROY_ID": cmdDestroy, "RDMA_USER_CM_CMD_RESOLVE_ROUTE": cmdRoute, "RDMA_USER_CM_CMD_CONNECT": cmdConnect,
	"RDMA_USER_CM_CMD_LISTEN": cmdListen, "RDMA_USER_CM_CMD_ACCEPT": cmdAccept, "RDMA_USER_CM_CMD_REJECT": cmdReject,
	"RDMA_USER_CM_CMD_DISCONNECT": cmdDisconnect, "RDMA_USER_CM_CMD_INIT_QP_ATTR": cmdAttributes, "RDMA_USER_CM_CMD_GET_EVENT": cmdEvent,
	"RDMA_USER_CM_CMD_SET_OPTION": cmdOption, "RDMA_USER_CM_CMD_QUERY": cmdQuery, "RDMA_USER_CM_CMD_BIND": cmdBind,
	"RDMA_USER_CM_CMD_RESOLVE_ADDR": cmdAddress, "RDMA_PS_TCP": spaceTCP, "RDMA_USER_CM_QUERY_ADDR": queryAddress,
	"RDMA_OPTION_ID": optionLevelID, "RDMA_OPTION_ID_TOS": optionService,
	"sizeof(struct __kernel_sockaddr_storage)": uint64(unsafe.Sizeof(socket{})),
}

// TestHeaders: our types and constants agree with the installed headers of the kernel.
func TestHeaders(t *testing.T) {
	want := map[string]uint64{}
	for name, n := range numbers {
		want[name] = n
	}
	for _, l := range layouts {
		layout(t, want, l.c, reflect.TypeOf(l.of), strings.Fields(l.fields))
	}
	var asks strings.Builder
	for expression := range want {
		fmt.Fprintf(&asks, "\tprintf(\"%s=%%llu\\n\", (unsigned long long)(%s));\n", expression, expression)
	}
	for line := range strings.Lines(runC(t, asks.String())) {
		i := strings.LastIndex(line, "=")
		if got := strings.TrimSpace(line[i+1:]); got != fmt.Sprint(want[line[:i]]) {
			t.Errorf("%s is %s in the headers, and %d here", line[:i], got, want[line[:i]])
		}
		delete(want, line[:i])
	}
	if len(want) != 0 {
		t.Errorf("the headers said nothing of %v", want)
	}
}

// layout adds the expected layout of a type. The header before a command is not part of the C type.
func layout(t *testing.T, want map[string]uint64, c string, of reflect.Type, names []string) {
	t.Helper()
	first, front := 0, uint64(0)
	if of.Field(0).Type == reflect.TypeFor[header]() {
		first, front = 1, uint64(unsafe.Sizeof(header{}))
	}
	if c != "struct sockaddr_in" {
		want["sizeof("+c+")"] = uint64(of.Size()) - front
	}
	if n := of.NumField() - first; n != len(names) {
		t.Fatalf("%s has %d fields here, and ours %d", c, len(names), n)
	}
	for i, name := range names {
		if f := of.Field(first + i); name != "-" {
			want["offsetof("+c+", "+name+")"] = uint64(f.Offset) - front
			want["sizeof((("+c+" *)0)->"+name+")"] = uint64(f.Type.Size())
		}
	}
}

// runC compiles a C program of these statements, and returns its output.
func runC(t *testing.T, statements string) string {
	t.Helper()
	source, program := filepath.Join(t.TempDir(), "ask.c"), filepath.Join(t.TempDir(), "ask")
	text := "#include <stddef.h>\n#include <stdio.h>\n#include <netinet/in.h>\n#include <rdma/rdma_user_cm.h>\nint main(void)\n{\n" + statements + "\treturn 0;\n}\n"
	testenv.Must(t, os.WriteFile(source, []byte(text), 0o600))
	if out, err := exec.Command(testenv.Tool(t, "gcc"), "-o", program, source).CombinedOutput(); err != nil {
		t.Fatalf("compile with the kernel's headers: %v\n%s", err, out)
	}
	out, err := exec.Command(program).Output()
	testenv.Must(t, err)
	return string(out)
}
